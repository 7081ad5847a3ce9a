// Kernels for CPUs and GPUs. Where the engine can access the memory of TensorFlow's GPUs, those for GPUs use the
// tensors in place. Elsewhere (a build without CUDA, a driver that is too old, a GPU of another vendor) they request
// host memory, and TensorFlow copies: the behaviour is that of CPU kernels.
//
// Which case applies is known only after the library is loaded (smddp_tf/_native/loader.py), so the kernels for GPUs
// are registered later than those for CPUs.
#pragma once

#include <utility>
#include <vector>

#include "tensorflow/core/framework/op_kernel.h"

namespace smddp::ops {

// Names of inputs and outputs.
using Arguments = std::vector<const char*>;

struct KernelEntry {
  const char* op = nullptr;
  Arguments tensors;  // on the GPU, where the engine can access it
  Arguments on_host;  // always in host memory
  tensorflow::OpKernel* (*create)(tensorflow::OpKernelConstruction*) = nullptr;
};

// Registers a kernel for CPUs, and stores it for later registration for GPUs; for initialisers of variables at
// namespace scope. Returns true.
bool Register(KernelEntry kernel);

template <class Kernel>
bool Register(const char* op, Arguments tensors, Arguments on_host) {
  return Register({op, std::move(tensors), std::move(on_host),
                   [](tensorflow::OpKernelConstruction* construction) -> tensorflow::OpKernel* {
                     return new Kernel(construction);
                   }});
}

// The value passed to smddp_register_gpu_kernels; false before.
bool EngineReachesGpus();

}  // namespace smddp::ops

// Registers the stored kernels; does nothing when called again. Threads: any.
extern "C" __attribute__((visibility("default"))) void smddp_register_gpu_kernels(int engine_reaches_gpus);
