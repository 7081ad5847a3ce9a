// The compiled kernels that the library carries; made by its CMakeLists.txt.
#pragma once

namespace smddp {

struct KernelImage {
  int capability;     // 80: compute capability 8.0
  bool machine_code;  // else PTX, which the driver compiles; it ends with a zero byte
  const char* data;
};

// The image for a GPU of this compute capability; null: there is none.
const KernelImage* KernelImageFor(int capability);
// The lowest compute capability with an image.
int OldestKernelImage();

}  // namespace smddp
