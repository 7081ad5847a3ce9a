// What allreduces of tensors on a GPU run on: the session's streams and buffers on that GPU, and its path to the
// other GPUs.
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

  // Starts the setup that was decided from the device infos (by rank); poll Ready. Every rank of the session makes
  // the same call. `groups` may be null unless the method is kGroup. A new context uses kHost, which needs no Open.
  virtual Status Open(const DeviceDecision& decision, const std::vector<RankDeviceInfo>& infos,
                      DeviceGroupLibrary* groups) = 0;
  virtual Result<bool> Ready() = 0;
  // Are tasks under way? GPU completion does not ring the doorbell, so the engine must poll.
  virtual bool busy() const = 0;
  // Keeps the memory until the process ends: MPI may write into it.
  virtual void KeepMemory() = 0;
  // Ends the context with the session: waits for work under way on the GPU, up to a limit, then releases NCCL.
  // `failed`: does not wait. The tasks must be destroyed before. May be called again. The destructor waits for the
  // context's own streams.
  virtual void End(bool failed) = 0;
};
// Creates the streams; buffers are allocated on first use and kept.
Result<std::unique_ptr<DeviceContext>> MakeDeviceContext(const Fabric& fabric, Device& device);

// A fused allreduce of tensors of which at least one lies on the context's device.
struct DeviceCall {
  FusedCall call;
  // One entry for each of view.pieces(), which are not empty: its order with the framework. Null: input and output of
  // this piece are in host memory.
  std::vector<std::shared_ptr<const DeviceWork>> works;
  bool through_host = true;  // also in a context that uses a path between GPUs: the ranks agreed on it for this plan
};

// Can the context's path between GPUs take this call? Decided by dtypes and operation, so the same on all ranks.
// Otherwise, and with `through_host`, the call goes through host memory; other ranks may have their tensors there
// already.
bool TakesDevicePath(const DeviceContext& context, const FusedCall& call);

// The task is done when the frameworks' streams wait for the results, results in host memory are complete, and
// everything that needs other ranks has also happened on the GPU. Every rank makes the same call; without
// `through_host` also ranks whose pieces are all in host memory (a rank that has joined). Different calls of one
// session run concurrently and may begin in any order.
TaskPtr DeviceAllreduce(DeviceContext& context, const AllreduceAlgorithm& rail, const DeviceCall& call);

}  // namespace smddp
