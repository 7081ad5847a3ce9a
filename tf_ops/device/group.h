// Collectives among GPUs, through a library such as NCCL.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/dtype.h"
#include "device/device.h"

namespace smddp {

// One member's handle of a group.
//
// Threads:   one, the engine's. No call blocks: a call puts work on its stream, or the library still works on the
//            last call, which Ready reports.
// Order:     all members make the same calls in the same order, each after Ready has returned true.
// Errors:    kPeerLost or kInternal, with the library's message and the usual cause. All are final: Abort follows.
class DeviceGroup {
 public:
  virtual ~DeviceGroup() = default;
  // True: all members have joined, and the last call is on its stream.
  virtual Result<bool> Ready() = 0;
  // The first error on the GPUs since the start (a peer died, a link failed); OK without one.
  virtual Status Health() = 0;

  // Member m receives the sums of elements [m * each, (m + 1) * each) of every member's `from`, which holds size *
  // each. `into` may be that part of `from`. Floating dtypes.
  virtual Status ReduceScatter(void* into, const void* from, int64_t each, DType dtype, DeviceStream stream) = 0;
  // `into` receives every member's `each` elements, in the order of the members. `from` may be its own part of
  // `into`.
  virtual Status Allgather(void* into, const void* from, int64_t each, DType dtype, DeviceStream stream) = 0;

  // Ends work under way, on the GPU too. Only the destructor may follow.
  virtual void Abort() = 0;
};

class DeviceGroupLibrary {
 public:
  virtual ~DeviceGroupLibrary() = default;
  virtual int version() const = 0;  // 22703 is 2.27.3
  // What the members need to find each other; one member creates it and sends it to the others. Short.
  virtual Result<std::string> MakeId() = 0;
  // Begins to join; DeviceGroup::Ready returns true when all members have. The device outlives the group.
  virtual Result<std::unique_ptr<DeviceGroup>> Join(const std::string& id, int size, int member, Device& device) = 0;
};

}  // namespace smddp
