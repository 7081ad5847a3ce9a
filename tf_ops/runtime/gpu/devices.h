// The GPUs of this process: the plug-in, found and loaded once.
#pragma once

#include <mutex>

#include "device/plugin.h"
#include "device/work.h"
#include "runtime/api/session.h"

namespace smddp {

// Threads: any.
class Devices {
 public:
  // Null when this build has none or it cannot be loaded; `*why` is the reason.
  DevicePlugin* plugin(Status* why = nullptr);
  // The number of devices; 0 without a plug-in.
  int Count();
  // The device that holds `memory`; kBadArgument for host memory.
  Result<Device*> At(const void* memory);
  // NCCL; null when it cannot be used, and `*why` is the reason.
  DeviceGroupLibrary* groups(Status* why = nullptr);
  DeviceSupport Find();

 private:
  void Load();

  std::once_flag loaded_, counted_;
  DevicePlugin* plugin_ = nullptr;
  Status why_none_, why_no_devices_;
  int count_ = 0;
};

// The process's devices.
Devices& TheDevices();

}  // namespace smddp
