// Orders the engine's work on a framework's tensors relative to the framework's own work.
#pragma once

#include <memory>

#include "device/device.h"

namespace smddp {

// What the framework has put on its stream so far runs before the engine's work; what it puts there after HandBack
// runs after the engine's work. The host waits for neither.
//
// Threads:   any, one at a time.
// Ownership: the framework's stream outlives it.
class DeviceWork {
 public:
  // `stream` is the framework's.
  static Result<std::shared_ptr<const DeviceWork>> Begin(Device& device, DeviceStream stream);
  ~DeviceWork();
  DeviceWork(const DeviceWork&) = delete;
  DeviceWork& operator=(const DeviceWork&) = delete;

  Device& device() const { return device_; }
  DeviceStream stream() const { return stream_; }
  // Work put on `stream`, one of the engine's, from now on runs after the framework's.
  Status MakeWait(DeviceStream stream) const { return device_.Wait(stream, ready_); }
  // Work put on the framework's stream from now on runs after `event`.
  Status HandBack(DeviceEvent event) const { return device_.Wait(stream_, event); }

 private:
  DeviceWork(Device& device, DeviceStream stream, DeviceEvent ready)
      : device_(device), stream_(stream), ready_(ready) {}

  Device& device_;
  const DeviceStream stream_;
  const DeviceEvent ready_;
};

}  // namespace smddp
