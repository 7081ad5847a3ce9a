// The GPUs of this process: the plug-in, found and loaded once.
#pragma once

#include <mutex>

#include "device/plugin.h"
#include "runtime/api/session.h"

namespace smddp {

// Threads: any.
class Devices {
 public:
  // An error: this build has none, or it cannot be loaded.
  Result<DevicePlugin*> plugin();
  // The number of devices; 0 without a plug-in.
  int Count();
  // The device that holds `memory`; kBadArgument for host memory.
  Result<Device*> At(const void* memory);
  // NCCL; an error: it cannot be used.
  Result<DeviceGroupLibrary*> groups();
  DeviceSupport Find();

 private:
  Result<int> Counted();

  std::once_flag loaded_, counted_;
  Result<DevicePlugin*> plugin_ = nullptr;
  Result<int> count_ = 0;
};

// The process's devices.
Devices& TheDevices();

}  // namespace smddp
