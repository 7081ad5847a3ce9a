// The compiled kernels that the library carries; made by its CMakeLists.txt.
#pragma once

namespace smddp {

struct KernelImage {
  int capability;     // 80: compute capability 8.0
  bool machine_code;  // else PTX, which the driver compiles; it ends with a zero byte
  const char* data;
};

// The CUDA that made them, as its headers write it: 13000 for 13.0.
int KernelImagesVersion();
// The image for a GPU of this compute capability; null: there is none.
const KernelImage* KernelImageFor(int capability);
// The lowest compute capability with an image.
int OldestKernelImage();

}  // namespace smddp
