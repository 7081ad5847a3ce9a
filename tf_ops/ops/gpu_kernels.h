// Kernels for GPUs. Where the engine reaches the memory of TensorFlow's GPUs they take the tensors where they lie.
// Elsewhere (a build without CUDA, a driver that is too old, a GPU of another maker) they ask for host memory, and
// TensorFlow copies: everything works there as it would with kernels for the CPU only.
//
// Which it is is known once the library is loaded (smddp_tf/_native/loader.py), so these kernels register later than
// others.
#pragma once

#include <utility>
#include <vector>

#include "tensorflow/core/framework/op_kernel.h"

namespace smddp::ops {

// Names of inputs and outputs.
using Arguments = std::vector<const char*>;

struct GpuKernel {
  const char* op = nullptr;
  Arguments tensors;  // on the GPU, where the engine reaches it
  Arguments on_host;  // always in host memory
  tensorflow::OpKernel* (*create)(tensorflow::OpKernelConstruction*) = nullptr;
};

// Notes a kernel to be registered; for initialisers of variables at namespace scope. Returns true.
bool NoteGpuKernel(GpuKernel kernel);

template <class Kernel>
bool OnGpu(const char* op, Arguments tensors, Arguments on_host) {
  return NoteGpuKernel({op, std::move(tensors), std::move(on_host),
                        [](tensorflow::OpKernelConstruction* construction) -> tensorflow::OpKernel* {
                          return new Kernel(construction);
                        }});
}

// What smddp_register_gpu_kernels was told; false before.
bool EngineReachesGpus();

}  // namespace smddp::ops

// Registers the noted kernels; does nothing when called again. Threads: any.
extern "C" __attribute__((visibility("default"))) void smddp_register_gpu_kernels(int engine_reaches_gpus);
