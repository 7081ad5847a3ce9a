// What allreduces of tensors on a GPU run on: a session's streams and buffers there, and its way to the other GPUs.
#pragma once

#include <memory>
#include <vector>

#include "collectives/device/rank_device_info.h"
#include "collectives/fabric.h"
#include "collectives/hierarchical.h"
#include "device/device.h"
#include "device/group.h"
#include "device/work.h"

namespace smddp {

// Threads:   the engine's.
// Ownership: the engine's; `fabric`, the device and the library outlive it, and it outlives its tasks.
class DeviceContext {
 public:
  virtual ~DeviceContext() = default;
  virtual Device& device() const = 0;
  virtual DeviceMethod method() const = 0;

  // Begins what was decided from the device infos, by rank; poll Ready. Every rank of the session makes the same call.
  // `groups` may be null unless the method is kGroup. A context begins as kHost and needs no Open for that.
  virtual Status Open(const DeviceDecision& decision, const std::vector<RankDeviceInfo>& infos,
                      DeviceGroupLibrary* groups) = 0;
  virtual Result<bool> Ready() = 0;
  // Are tasks under way? A GPU rings no bell: look often.
  virtual bool busy() const = 0;
  // Has it shown memory to other ranks? Then they must have aborted theirs before it is destroyed.
  virtual bool lends() const = 0;
  // Leaves the memory to the end of the process: other ranks may read it, or MPI may write into it.
  virtual void KeepMemory() = 0;
  // The session ends: waits for what is under way on the GPU, a while, then gives up NCCL and what others lent.
  // `failed`: does not wait. Tasks are gone before. May be called again. Destroy the context when the other ranks of
  // the node have come here too (have said goodbye), if they can: they read its memory. The destructor waits for the
  // context's own streams.
  virtual void End(bool failed) = 0;
};
// Makes streams; buffers come with the first use and stay.
Result<std::unique_ptr<DeviceContext>> MakeDeviceContext(const Fabric& fabric, Device& device);

// A fused allreduce of tensors of which some or all lie on the context's device.
struct DeviceCall {
  FusedCall call;
  // For each of view.pieces(), which are not empty: its order with the framework; null: input and output of this piece
  // are in host memory.
  std::vector<std::shared_ptr<const DeviceWork>> works;
  bool through_host = true;  // also in a context that goes from GPU to GPU: the plan's ranks agreed on it
};

// Can the context's way between GPUs take this call? The same on all ranks: dtypes and operation decide. Otherwise, and
// with `through_host`, it goes through host memory, where other ranks may have brought it from the start.
bool TakesDevicePath(const DeviceContext& context, const FusedCall& call);

// The task is done when the frameworks' streams wait for the results (and those in host memory are there), and all that
// needs other ranks has happened on the GPU too. Every rank makes the same call; without `through_host` also those
// whose pieces are all in host memory (a rank that has joined). Different calls of one session run side by side, begun
// in any order.
TaskPtr DeviceAllreduce(DeviceContext& context, const AllreduceAlgorithm& rail, const DeviceCall& call);

}  // namespace smddp
