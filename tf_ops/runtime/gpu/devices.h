// The GPUs of this process: the plug-in, found and loaded once.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "device/events.h"
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
  // What `stream`, a framework's, holds now; on the device that holds `memory`. kBadArgument: host memory. Only the
  // first time CUDA is asked where the memory lies: a stream belongs to one device as long as the process lives.
  Result<PooledEventPtr> Mark(const void* memory, DeviceStream stream);
  // NCCL; an error: it cannot be used.
  Result<DeviceGroupLibrary*> groups();
  DeviceSupport Find();

 private:
  Result<Device*> At(const void* memory);

  std::once_flag loaded_, counted_;
  Result<DevicePlugin*> plugin_ = nullptr;
  Result<int> count_ = 0;
  std::mutex mutex_;
  std::map<void*, std::unique_ptr<EventPool>> events_;  // by stream; of a default stream, by device
};

// The process's devices.
Devices& TheDevices();

}  // namespace smddp
