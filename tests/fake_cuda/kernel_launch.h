// The kernels of tf_ops/cuda, compiled for the processor (shim.h), as modules and functions of the driver.
#pragma once

#include <cuda.h>

namespace smddp::fake {

// CUDA_ERROR_NO_BINARY_FOR_GPU: the image is not one for this GPU. Its text says what it is for: "machine code 80", or
// "PTX 100", which is for newer GPUs too.
CUresult LoadModule(int device, const char* image, CUmodule* module);
CUresult FindKernel(int device, CUmodule module, const char* name, CUfunction* function);

struct Shape {
  unsigned blocks, threads;
};

// Copies the kernel's parameter, a MoveJob, and puts the launch on the stream. All that it reaches must be memory that
// the device reaches, and is held until it has run.
CUresult Launch(int device, CUfunction function, Shape shape, const void* parameter, CUstream stream);

}  // namespace smddp::fake
