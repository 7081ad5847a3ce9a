#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "cuda/cuda_device.h"
#include "cuda/nccl/nccl_library.h"
#include "device/plugin.h"

namespace smddp {
namespace {

// "8.6" of 86.
std::string CapabilityText(int capability) { return Concat(capability / 10, ".", capability % 10); }

// The kernels for the GPU of that index. kBadState: there are none for its compute capability.
Result<const KernelImage*> KernelsFor(const Driver& driver, int index) {
  CUdevice device = 0;
  int major = 0, minor = 0;
  SMDDP_CUDA(driver, cuDeviceGet, &device, index);
  SMDDP_CUDA(driver, cuDeviceGetAttribute, &major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
  SMDDP_CUDA(driver, cuDeviceGetAttribute, &minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
  if (const KernelImage* const image = KernelImageFor(major * 10 + minor)) return image;
  char name[256] = "";
  SMDDP_CUDA(driver, cuDeviceGetName, name, sizeof(name), device);
  return Status(Reason::kBadState, "GPU ", index, " (", name, ") has compute capability ",
                CapabilityText(major * 10 + minor), "; this build of smddp_tf needs ",
                CapabilityText(OldestKernelImage()), " or newer (docs/gpu.md).");
}

// The GPUs that are visible to CUDA.
class CudaPlugin : public DevicePlugin {
 public:
  // `nccl`: as MakeDevicePlugin.
  explicit CudaPlugin(std::string nccl) : nccl_(std::move(nccl)) {}

  std::string platform() const override { return Concat("CUDA ", CUDA_VERSION / 1000, ".", CUDA_VERSION % 1000 / 10); }

  Result<int> Count() override {
    SMDDP_ASSIGN_OR_RETURN(const Driver* driver, TheDriver());
    int all = 0, usable = 0;
    SMDDP_CUDA(*driver, cuDeviceGetCount, &all);
    Status why_not;
    for (int index = 0; index < all; ++index) {
      const Status status = KernelsFor(*driver, index).status();
      usable += status.ok() ? 1 : 0;
      if (!status.ok()) why_not = status;
    }
    if (usable == 0) SMDDP_RETURN_IF_ERROR(why_not);
    return usable;
  }

  Result<Device*> Open(int index) override {
    SMDDP_ASSIGN_OR_RETURN(const Driver* driver, TheDriver());
    const std::lock_guard<std::mutex> lock(mutex_);
    std::unique_ptr<CudaDevice>& device = devices_[index];
    if (device == nullptr) {
      SMDDP_ASSIGN_OR_RETURN(const KernelImage* image, KernelsFor(*driver, index));
      SMDDP_ASSIGN_OR_RETURN(device, CudaDevice::Open(*driver, index, *image));
    }
    return static_cast<Device*>(device.get());
  }

  Result<int> DeviceOf(const void* memory) override {
    SMDDP_ASSIGN_OR_RETURN(const Driver* driver, TheDriver());
    const CUdeviceptr address = reinterpret_cast<uintptr_t>(memory);
    unsigned kind = 0;
    int index = -1;
    const CUresult said = driver->cuPointerGetAttribute(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address);
    // The driver's answer for memory that is not CUDA's.
    if (said == CUDA_ERROR_INVALID_VALUE || (said == CUDA_SUCCESS && kind == CU_MEMORYTYPE_HOST)) return -1;
    SMDDP_RETURN_IF_ERROR(CudaStatus(*driver, said, "cuPointerGetAttribute"));
    SMDDP_CUDA(*driver, cuPointerGetAttribute, &index, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address);
    return index;
  }

  Result<DeviceGroupLibrary*> Groups() override { return LoadNccl(nccl_); }

 private:
  const std::string nccl_;
  std::mutex mutex_;
  std::map<int, std::unique_ptr<CudaDevice>> devices_;  // by index; null until opened
};

}  // namespace
}  // namespace smddp

// The only exported symbol of this library.
extern "C" __attribute__((visibility("default"))) smddp::DevicePlugin* smddp_make_device_plugin(int version,
                                                                                                const char* nccl) {
  if (version != smddp::kDevicePluginVersion) return nullptr;
  static smddp::CudaPlugin* const plugin = new smddp::CudaPlugin(nccl);
  return plugin;
}
