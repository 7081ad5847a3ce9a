#include "cuda/cuda_plugin.h"

#include <cstdint>

#include "cuda/cuda_status.h"
#include "cuda/nccl/nccl_library.h"

namespace smddp {

std::string CudaPlugin::platform() const {
  return "CUDA " + std::to_string(CUDART_VERSION / 1000) + "." + std::to_string(CUDART_VERSION % 1000 / 10);
}

Result<int> CudaPlugin::Count() {
  SMDDP_RETURN_IF_ERROR(TheDriver().status());
  int count = 0;
  const Status status = CudaStatus(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  if (!status.ok()) return Status(Reason::kBadState, status.message());
  return count;
}

Result<Device*> CudaPlugin::Open(int index) {
  SMDDP_ASSIGN_OR_RETURN(const int count, Count());
  if (index < 0 || index >= count) {
    return Status(Reason::kBadArgument, "There is no GPU " + std::to_string(index) + ": this process sees " +
                                            std::to_string(count) + " (CUDA_VISIBLE_DEVICES).");
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  devices_.resize(count);
  std::unique_ptr<CudaDevice>& device = devices_[index];
  if (device == nullptr) {
    SMDDP_ASSIGN_OR_RETURN(device, CudaDevice::Open(index));
  }
  return static_cast<Device*>(device.get());
}

// Uses the driver API: the runtime would first create a context on the thread's current device.
Result<int> CudaPlugin::DeviceOf(const void* memory) {
  SMDDP_ASSIGN_OR_RETURN(const Driver* driver, TheDriver());
  const CUdeviceptr address = reinterpret_cast<uintptr_t>(memory);
  unsigned kind = 0;
  int index = -1;
  CUresult said = driver->pointer_attribute(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address);
  // The driver's answers for memory that is not CUDA's, and before this process has used CUDA.
  if (said == CUDA_ERROR_INVALID_VALUE || said == CUDA_ERROR_NOT_INITIALIZED) return -1;
  if (said == CUDA_SUCCESS) {
    if (kind == CU_MEMORYTYPE_HOST) return -1;
    said = driver->pointer_attribute(&index, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address);
  }
  if (said == CUDA_SUCCESS) return index;
  return Status(Reason::kInternal, "CUDA does not report on which GPU a tensor is (cuPointerGetAttribute, error " +
                                       std::to_string(said) + ").");
}

Result<DeviceGroupLibrary*> CudaPlugin::Groups() {
  return LoadNccl(nccl_, [](Device& device, const std::function<void()>& call) {
    static_cast<CudaDevice&>(device).RunCurrent(call);
  });
}

}  // namespace smddp

// The only exported symbol of this library.
extern "C" __attribute__((visibility("default"))) smddp::DevicePlugin* smddp_make_device_plugin(int version,
                                                                                                const char* nccl) {
  if (version != smddp::kDevicePluginVersion) return nullptr;
  static smddp::CudaPlugin* const plugin = new smddp::CudaPlugin(nccl);
  return plugin;
}
