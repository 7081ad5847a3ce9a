#include "collectives/device/moments.h"

namespace smddp {

Moment::~Moment() { home_.free_.push_back(event_); }

Result<bool> Moment::Passed() const {
  if (!passed_) {
    SMDDP_ASSIGN_OR_RETURN(passed_, home_.device_.Done(event_));
  }
  return passed_;
}

Status Moment::MakeWait(DeviceStream stream) const {
  return passed_ ? Status::Ok() : home_.device_.Wait(stream, event_);
}

Moments::~Moments() {
  for (const DeviceEvent event : free_) device_.DestroyEvent(event);
}

// An event that some stream still waits for may be recorded anew: the wait is for what it stood for then.
Result<MomentPtr> Moments::Mark(DeviceStream stream) {
  if (free_.empty()) {
    SMDDP_ASSIGN_OR_RETURN(const DeviceEvent made, device_.MakeEvent());
    free_.push_back(made);
  }
  const auto moment = std::make_shared<const Moment>(*this, free_.back());
  free_.pop_back();
  SMDDP_RETURN_IF_ERROR(device_.Record(moment->event(), stream));
  return MomentPtr(moment);
}

}  // namespace smddp
