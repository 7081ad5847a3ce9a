#include "device/events.h"

#include "core/clock.h"

namespace smddp {

EventPool::~EventPool() {
  for (const DeviceEvent event : free_) device_.DestroyEvent(event);
}

// An event may be recorded again while a stream still waits for it: that wait refers to the earlier recording.
Result<PooledEventPtr> EventPool::Mark(DeviceStream stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (free_.empty()) {
    SMDDP_ASSIGN_OR_RETURN(const DeviceEvent made, device_.MakeEvent());
    free_.push_back(made);
  }
  SMDDP_RETURN_IF_ERROR(device_.Record(free_.back(), stream));
  Stream& marked = streams_[stream];
  marked.handle = stream;
  const auto event = std::make_shared<const PooledEvent>(*this, free_.back(), marked);
  free_.pop_back();
  return PooledEventPtr(event);
}

Result<bool> PooledEvent::Passed() const {
  const std::lock_guard<std::mutex> lock(home_.mutex_);
  if (number_ <= stream_.passed) return true;
  const int64_t now_ns = NowNs();
  if (number_ >= stream_.awaited && now_ns - stream_.asked_ns < EventPool::kAskEveryNs) return false;
  SMDDP_ASSIGN_OR_RETURN(const bool passed, device().Done(event_));
  stream_.asked_ns = passed ? 0 : now_ns;
  if (passed) stream_.passed = number_;
  stream_.awaited = number_;
  return passed;
}

PooledEvent::~PooledEvent() {
  const std::lock_guard<std::mutex> lock(home_.mutex_);
  home_.free_.push_back(event_);
}

Status PooledEvent::MakeWait(DeviceStream stream) const {
  return number_ <= stream_.passed ? Status::Ok() : home_.device_.Wait(stream, event_);
}

}  // namespace smddp
