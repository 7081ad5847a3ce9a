// Orders the engine's work on a framework's tensors relative to the framework's own work.
#pragma once

#include <memory>

#include "device/events.h"

namespace smddp {

// What the framework has put on its stream so far runs before the engine's work; what it puts there after HandBack
// runs after the engine's work. The host waits for neither.
//
// Threads:   any, one at a time.
// Ownership: the framework's stream and the events outlive it.
class DeviceWork {
 public:
  // `stream` is the framework's; on the device of `events`.
  static Result<std::shared_ptr<const DeviceWork>> Begin(EventPool& events, DeviceStream stream) {
    SMDDP_ASSIGN_OR_RETURN(PooledEventPtr ready, events.Mark(stream));
    return std::make_shared<const DeviceWork>(events.device(), stream, std::move(ready));
  }
  DeviceWork(Device& device, DeviceStream stream, PooledEventPtr ready)
      : device_(device), stream_(stream), ready_(std::move(ready)) {}
  DeviceWork(const DeviceWork&) = delete;
  DeviceWork& operator=(const DeviceWork&) = delete;

  Device& device() const { return device_; }
  DeviceStream stream() const { return stream_; }
  // Work put on `stream`, one of the engine's, from now on runs after the framework's.
  Status MakeWait(DeviceStream stream) const { return ready_->MakeWait(stream); }
  // Work put on the framework's stream from now on runs after `event`.
  Status HandBack(const PooledEvent& event) const { return event.MakeWait(stream_); }

 private:
  Device& device_;
  const DeviceStream stream_;
  const PooledEventPtr ready_;
};

}  // namespace smddp
