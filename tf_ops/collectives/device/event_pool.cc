#include "collectives/device/event_pool.h"

namespace smddp {

PooledEvent::~PooledEvent() { home_.free_.push_back(event_); }

Result<bool> PooledEvent::Passed() const {
  if (!passed_) {
    SMDDP_ASSIGN_OR_RETURN(passed_, home_.device_.Done(event_));
  }
  return passed_;
}

Status PooledEvent::MakeWait(DeviceStream stream) const {
  return passed_ ? Status::Ok() : home_.device_.Wait(stream, event_);
}

EventPool::~EventPool() {
  for (const DeviceEvent event : free_) device_.DestroyEvent(event);
}

// An event may be recorded again while a stream still waits for it: that wait refers to the earlier recording.
Result<PooledEventPtr> EventPool::Mark(DeviceStream stream) {
  if (free_.empty()) {
    SMDDP_ASSIGN_OR_RETURN(const DeviceEvent made, device_.MakeEvent());
    free_.push_back(made);
  }
  const auto event = std::make_shared<const PooledEvent>(*this, free_.back());
  free_.pop_back();
  SMDDP_RETURN_IF_ERROR(device_.Record(event->event(), stream));
  return PooledEventPtr(event);
}

}  // namespace smddp
