// The streams of a device context. Each kind of work has its own, so that no work queues behind a wait of another
// kind.
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

  DeviceStream pack() const { return streams_[0]; }    // waits for the framework's work
  DeviceStream down() const { return streams_[1]; }    // copies to the host
  DeviceStream reduce() const { return streams_[2]; }  // sums among GPUs
  DeviceStream up() const { return streams_[3]; }      // data from other nodes: copies, sums; waits for nothing
  DeviceStream unpack() const { return streams_[4]; }  // the framework's stream waits for it

  static constexpr int kCount = 5;
  DeviceStream at(int index) const { return streams_[index]; }

 private:
  Device& device_;
  DeviceStream streams_[kCount] = {};
};

}  // namespace smddp
