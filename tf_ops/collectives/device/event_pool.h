// Reusable events that mark points in the order of a stream.
#pragma once

#include <memory>
#include <vector>

#include "device/device.h"

namespace smddp {

class EventPool;

// Everything that a stream held when it was marked. The event returns to the pool when the last holder releases it.
class PooledEvent {
 public:
  PooledEvent(EventPool& home, DeviceEvent event) : home_(home), event_(event) {}
  ~PooledEvent();
  PooledEvent(const PooledEvent&) = delete;
  PooledEvent& operator=(const PooledEvent&) = delete;

  Result<bool> Passed() const;
  // Work put on `stream` from now on runs after it.
  Status MakeWait(DeviceStream stream) const;
  // For a framework's stream: see DeviceWork::HandBack.
  DeviceEvent event() const { return event_; }

 private:
  EventPool& home_;
  const DeviceEvent event_;
  mutable bool passed_ = false;
};
using PooledEventPtr = std::shared_ptr<const PooledEvent>;

// Threads:   the engine's.
// Ownership: outlives its events; the device outlives it.
class EventPool {
 public:
  explicit EventPool(Device& device) : device_(device) {}
  ~EventPool();
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;

  Result<PooledEventPtr> Mark(DeviceStream stream);
  Device& device() const { return device_; }

 private:
  friend class PooledEvent;

  Device& device_;
  std::vector<DeviceEvent> free_;
};

}  // namespace smddp
