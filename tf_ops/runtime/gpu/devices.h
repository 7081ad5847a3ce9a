// The GPUs of this process: the plug-in, found and loaded once.
#pragma once

#include <memory>
#include <mutex>

#include "device/plugin.h"
#include "device/work.h"
#include "runtime/api/session.h"

namespace smddp {

// Threads: any.
class Devices {
 public:
  // Null: this build has none, or it cannot be loaded; `*why` says so.
  DevicePlugin* plugin(Status* why = nullptr);
  // Its devices; 0 without a plug-in.
  int Count();
  // The device at which `memory` lies; kInvalidArgument for host memory.
  Result<Device*> At(const void* memory);
  // NCCL; null when it cannot be used, and `*why` says so.
  DeviceGroupLibrary* groups(Status* why = nullptr);
  DeviceSupport Find();

 private:
  void Load();

  std::once_flag loaded_, counted_;
  DevicePlugin* plugin_ = nullptr;
  Status why_none_, why_no_devices_;
  int count_ = 0;
};

// The process's.
Devices& TheDevices();

}  // namespace smddp
