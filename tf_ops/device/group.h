// Collectives among GPUs, through a library such as NCCL.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "device/device.h"

namespace smddp {

// One collective of a group. Sums are of floating dtypes.
struct GroupCall {
  enum class Kind {
    kAllreduce,      // `into` receives the sums of all members' `from`, of `each` elements; both may be the same
    kReduceScatter,  // member m receives the sums of elements [m * each, (m + 1) * each) of all members' `from`, which
                     // holds size * each; `into` may be that part of `from`
    kAllgather,      // `into` receives all members' `each` elements, in their order; `from` may be its part of `into`
  };
  Kind kind = Kind::kAllreduce;
  void* into = nullptr;
  const void* from = nullptr;
  int64_t each = 0;
  DType dtype = DType::kFloat32;
};

// One member's handle of a group.
//
// Threads:   one, the engine's. No call blocks: a call puts work on its stream, or the library still works on the
//            last call, which Ready reports.
// Order:     all members make the same calls in the same order, each after Ready has returned true.
// Errors:    kPeerLost or kInternal, with the library's message and the usual cause. All are final: every later call
//            returns the same, and Abort follows.
class DeviceGroup {
 public:
  virtual ~DeviceGroup() = default;
  // True: all members have joined, and the last call is on its stream.
  virtual Result<bool> Ready() = 0;
  // The first error on the GPUs since the start (a peer died, a link failed); OK without one.
  virtual Status Health() = 0;
  // Puts these collectives on the stream, in this order and in one launch where the library can.
  virtual Status Call(const std::vector<GroupCall>& calls, DeviceStream stream) = 0;
  // Ends work under way, on the GPU too. Only the destructor may follow.
  virtual void Abort() = 0;
};

class DeviceGroupLibrary {
 public:
  virtual ~DeviceGroupLibrary() = default;
  virtual int version() const = 0;  // 22703 is 2.27.3
  // What the members need to find each other; one member creates it and sends it to the others: bytes, few.
  virtual Result<std::string> MakeId() = 0;
  // Begins to join; DeviceGroup::Ready returns true when all members have. The device outlives the group.
  virtual Result<std::unique_ptr<DeviceGroup>> Join(const std::string& id, int size, int member, Device& device) = 0;
};

}  // namespace smddp
