// What allreduces of tensors on a GPU run on: the session's streams and buffers on that GPU, and its path to the
// other GPUs.
#pragma once

#include <memory>
#include <vector>

#include "collectives/device/buffer_pool.h"
#include "collectives/device/nccl_call_order.h"
#include "collectives/device/rank_device_info.h"
#include "collectives/device/streams.h"
#include "collectives/hierarchical.h"
#include "device/events.h"
#include "device/group.h"

namespace smddp {

// Threads:   the engine's.
// Ownership: the engine's; `fabric`, the device and the library outlive it, and it outlives its tasks.
class DeviceContext {
 public:
  // Buffers are allocated on first use and kept. Call Make before anything else.
  DeviceContext(const Fabric& fabric, Device& device)
      : fabric_(fabric),
        device_(device),
        streams_(device),
        events_(device),
        device_buffers_(device, BufferPool::Kind::kDevice),
        pinned_buffers_(device, BufferPool::Kind::kPinned),
        call_order_(fabric) {}
  // Waits for the context's own streams.
  ~DeviceContext();
  DeviceContext(const DeviceContext&) = delete;
  DeviceContext& operator=(const DeviceContext&) = delete;
  // Makes the streams.
  Status Make() { return While("making streams", streams_.Make()); }

  Device& device() const { return device_; }
  DeviceMethod method() const { return method_; }

  // Starts the setup that was decided from the device infos (by rank); poll Ready. Every rank of the session makes
  // the same call. `groups` may be null unless the method is kGroup. A new context uses kHost, which needs no Open.
  Status Open(const DeviceDecision& decision, const std::vector<RankDeviceInfo>& infos, DeviceGroupLibrary* groups);
  Result<bool> Ready();
  // Are tasks under way? GPU completion does not ring the doorbell, so the engine must poll.
  bool busy() const { return tasks_ > 0; }
  // Keeps the memory until the process ends: MPI may write into it.
  void KeepMemory();
  // Ends the context with the session: waits for work under way on the GPU, up to a limit, then releases NCCL.
  // `failed`: does not wait. The tasks must be destroyed before. May be called again.
  void End(bool failed);

  // --- For the tasks of this folder ---

  const Fabric& fabric() const { return fabric_; }
  const Streams& streams() const { return streams_; }
  BufferPool& device_buffers() { return device_buffers_; }
  BufferPool& pinned_buffers() { return pinned_buffers_; }
  Result<PooledEventPtr> Mark(DeviceStream stream) { return events_.Mark(stream); }

  DeviceGroup& group() { return *group_; }
  NcclCallOrder& call_order() { return call_order_; }
  // Enter: a task begins. Leave: a task has ended.
  void Enter() { ++tasks_; }
  void Leave() { --tasks_; }
  // As those of the group. An error of a peer is not reported at once: the session's failure detector can name the
  // lost rank.
  Result<bool> GroupReady();
  Result<bool> GroupHealthy();
  // The group's error status, checked from time to time.
  Status CheckGroup();

  // Adds to the status what was being done on which GPU.
  Status While(const char* doing, const Status& status) const;
  Result<bool> Passed(const PooledEvent& event, const char* doing) const;

 private:
  Result<bool> OfGroup(const Result<bool>& answer);
  bool Drain(double seconds);

  const Fabric& fabric_;
  Device& device_;
  DeviceMethod method_ = DeviceMethod::kHost;
  Streams streams_;
  EventPool events_;
  BufferPool device_buffers_, pinned_buffers_;
  NcclCallOrder call_order_;
  std::unique_ptr<DeviceGroup> group_;  // kGroup, where the node has several ranks
  int64_t checked_ns_ = 0, lost_ns_ = 0;
  int tasks_ = 0;
};

// A fused allreduce of tensors of which at least one lies on the context's device.
struct DeviceCall {
  FusedCall call;
  // One entry for each of view.pieces(), which are not empty: its order with the framework. Null: input and output of
  // this piece are in host memory.
  std::vector<std::shared_ptr<const PooledEvent>> works;
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
