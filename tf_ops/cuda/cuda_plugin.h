// The GPUs that are visible to CUDA.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "cuda/cuda_device.h"
#include "device/plugin.h"

namespace smddp {

class CudaPlugin : public DevicePlugin {
 public:
  // `nccl`: as MakeDevicePlugin.
  explicit CudaPlugin(std::string nccl) : nccl_(std::move(nccl)) {}

  std::string platform() const override;
  Result<int> Count() override;
  Result<Device*> Open(int index) override;
  Result<int> DeviceOf(const void* memory) override;
  Result<DeviceGroupLibrary*> Groups() override;

 private:
  const std::string nccl_;
  std::mutex mutex_;
  std::map<int, std::unique_ptr<CudaDevice>> devices_;  // by index; null until opened
};

}  // namespace smddp
