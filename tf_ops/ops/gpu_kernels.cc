#include "ops/gpu_kernels.h"

#include <atomic>
#include <mutex>

#include "tensorflow/core/framework/kernel_def_builder.h"

namespace smddp::ops {
namespace {

std::atomic<bool> g_engine_reaches_gpus{false};

std::vector<GpuKernel>& Noted() {
  static auto* const kernels = new std::vector<GpuKernel>;
  return *kernels;
}

void Register(const GpuKernel& kernel, bool tensors_on_gpu) {
  tensorflow::KernelDefBuilder builder(kernel.op);
  builder.Device(tensorflow::DEVICE_GPU);
  for (const char* argument : kernel.on_host) builder.HostMemory(argument);
  if (!tensors_on_gpu) {
    for (const char* argument : kernel.tensors) builder.HostMemory(argument);
  }
  const tensorflow::kernel_factory::OpKernelRegistrar registrar(builder.Build(), kernel.op, kernel.create);
}

}  // namespace

bool NoteGpuKernel(GpuKernel kernel) {
  Noted().push_back(std::move(kernel));
  return true;
}

bool EngineReachesGpus() { return g_engine_reaches_gpus; }

}  // namespace smddp::ops

void smddp_register_gpu_kernels(int engine_reaches_gpus) {
  static std::once_flag once;
  std::call_once(once, [engine_reaches_gpus] {
    smddp::ops::g_engine_reaches_gpus = engine_reaches_gpus != 0;
    for (const smddp::ops::GpuKernel& kernel : smddp::ops::Noted()) {
      smddp::ops::Register(kernel, engine_reaches_gpus != 0);
    }
  });
}
