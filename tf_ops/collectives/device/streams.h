// The streams of a device context. Each kind of work has one, so that none stands behind what waits for something else.
#pragma once

#include "device/device.h"

namespace smddp {

class Streams {
 public:
  explicit Streams(Device& device) : device_(device) {}
  ~Streams() {
    for (DeviceStream& stream : streams_) {
      if (stream != nullptr) device_.DestroyStream(stream);
    }
  }
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  Status Make() {
    for (DeviceStream& stream : streams_) {
      SMDDP_ASSIGN_OR_RETURN(stream, device_.MakeStream());
    }
    return Status::Ok();
  }

  DeviceStream pack() const { return streams_[0]; }    // waits for the framework
  DeviceStream down() const { return streams_[1]; }    // copies to the host
  DeviceStream reduce() const { return streams_[2]; }  // sums among GPUs
  DeviceStream up() const { return streams_[3]; }      // what comes from other nodes: copies, sums; waits for nothing
  DeviceStream unpack() const { return streams_[4]; }  // the framework waits for it

  static constexpr int kCount = 5;
  DeviceStream at(int index) const { return streams_[index]; }

 private:
  Device& device_;
  DeviceStream streams_[kCount] = {};
};

}  // namespace smddp
