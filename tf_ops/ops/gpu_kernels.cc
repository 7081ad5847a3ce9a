#include "ops/gpu_kernels.h"

#include <atomic>
#include <mutex>

#include "tensorflow/core/framework/kernel_def_builder.h"

namespace smddp::ops {
namespace {

std::atomic<bool> g_engine_reaches_gpus{false};

std::vector<KernelEntry>& Noted() {
  static auto* const kernels = new std::vector<KernelEntry>;
  return *kernels;
}

void RegisterForGpus(const KernelEntry& kernel, bool tensors_on_gpu) {
  tensorflow::KernelDefBuilder builder(kernel.op);
  builder.Device(tensorflow::DEVICE_GPU);
  for (const char* argument : kernel.on_host) builder.HostMemory(argument);
  if (!tensors_on_gpu) {
    for (const char* argument : kernel.tensors) builder.HostMemory(argument);
  }
  const tensorflow::kernel_factory::OpKernelRegistrar registrar(builder.Build(), kernel.op, kernel.create);
}

}  // namespace

bool Register(KernelEntry kernel) {
  const tensorflow::KernelDef* const for_cpus =
      tensorflow::KernelDefBuilder(kernel.op).Device(tensorflow::DEVICE_CPU).Build();
  const tensorflow::kernel_factory::OpKernelRegistrar registrar(for_cpus, kernel.op, kernel.create);
  Noted().push_back(std::move(kernel));
  return true;
}

bool EngineReachesGpus() { return g_engine_reaches_gpus; }

}  // namespace smddp::ops

void smddp_register_gpu_kernels(int engine_reaches_gpus) {
  static std::once_flag once;
  std::call_once(once, [engine_reaches_gpus] {
    smddp::ops::g_engine_reaches_gpus = engine_reaches_gpus != 0;
    for (const smddp::ops::KernelEntry& kernel : smddp::ops::Noted()) {
      smddp::ops::RegisterForGpus(kernel, engine_reaches_gpus != 0);
    }
  });
}
