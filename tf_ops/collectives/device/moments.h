// Points in the order of a stream, whose events are used again and again.
#pragma once

#include <memory>
#include <vector>

#include "device/device.h"

namespace smddp {

class Moments;

// All that a stream held when it was marked. Its event goes back when the last holder lets go of it.
class Moment {
 public:
  Moment(Moments& home, DeviceEvent event) : home_(home), event_(event) {}
  ~Moment();
  Moment(const Moment&) = delete;
  Moment& operator=(const Moment&) = delete;

  Result<bool> Passed() const;
  // What `stream` gets from now on comes after it.
  Status MakeWait(DeviceStream stream) const;
  // The same for a framework: see DeviceWork::HandBack.
  DeviceEvent event() const { return event_; }

 private:
  Moments& home_;
  const DeviceEvent event_;
  mutable bool passed_ = false;
};
using MomentPtr = std::shared_ptr<const Moment>;

// Threads:   the engine's.
// Ownership: outlives its moments; the device outlives it.
class Moments {
 public:
  explicit Moments(Device& device) : device_(device) {}
  ~Moments();
  Moments(const Moments&) = delete;
  Moments& operator=(const Moments&) = delete;

  Result<MomentPtr> Mark(DeviceStream stream);
  Device& device() const { return device_; }

 private:
  friend class Moment;

  Device& device_;
  std::vector<DeviceEvent> free_;
};

}  // namespace smddp
