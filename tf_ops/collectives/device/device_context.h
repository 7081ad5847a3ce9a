// What allreduces of tensors on a GPU run on: the session's streams and buffers on that GPU, and its path to the
// other GPUs.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "collectives/device/buffer_pool.h"
#include "collectives/device/group_calls.h"
#include "collectives/device/rank_device_info.h"
#include "collectives/hierarchical.h"
#include "device/events.h"
#include "device/group.h"

namespace smddp {

// The streams of a device context. Each kind of work has its own, so that no work queues behind a wait of another
// kind.
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

  const std::array<DeviceStream, 5>& all() const { return streams_; }

 private:
  Device& device_;
  std::array<DeviceStream, 5> streams_ = {};
};

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
        device_buffers_(device, BufferPool::Kind::kDevice, [this] { return MayAllocate(); }),
        pinned_buffers_(device, BufferPool::Kind::kPinned, [this] { return MayAllocate(); }) {}
  // Waits for the context's own streams.
  ~DeviceContext();
  // Makes the streams.
  Status Make() { return While("making streams", streams_.Make()); }

  Device& device() const { return device_; }
  DeviceMethod method() const { return method_; }

  // Begins to join NCCL's group of these ranks, one of which is this one; poll calls()->Joined. Every member makes the
  // same call, with the id of the first one.
  Status Join(const Group& members, const std::string& id, DeviceGroupLibrary& groups);
  // How calls are reduced from now on; kHost at first. Joined before: the group that kNode or kAll need.
  void Use(DeviceMethod method) { method_ = method; }
  // May memory be allocated, which may wait for all work of the GPU? Not while a call of kNode runs there: it may wait
  // for ranks of this node that wait for other nodes, and those for what this thread sends.
  Result<bool> MayAllocate() const { return method_ != DeviceMethod::kNode || !calls_ ? true : calls_->Idle(); }
  // Are tasks under way? GPU completion does not ring the doorbell, so the engine must poll.
  bool busy() const { return tasks_ > 0; }
  // Keeps the memory until the process ends: MPI may write into it.
  void KeepMemory();
  // Ends the context with the session: waits for work under way on the GPU, up to a limit, then releases NCCL.
  // `failed`: does not wait for the GPU. The tasks must be destroyed before. May be called again; also Join may follow.
  void End(bool failed);

  // --- For the tasks of this folder ---

  const Fabric& fabric() const { return fabric_; }
  const Streams& streams() const { return streams_; }
  BufferPool& device_buffers() { return device_buffers_; }
  BufferPool& pinned_buffers() { return pinned_buffers_; }
  Result<PooledEventPtr> Mark(DeviceStream stream) { return events_.Mark(stream); }

  // NCCL's group; null: this rank is in none.
  GroupCalls* calls() { return calls_.get(); }
  // Enter: a task begins. Leave: a task has ended.
  void Enter() { ++tasks_; }
  void Leave() { --tasks_; }

  // Adds to the status what was being done on which GPU.
  Status While(const char* doing, const Status& status) const;

 private:
  bool Drain(double seconds);

  const Fabric& fabric_;
  Device& device_;
  DeviceMethod method_ = DeviceMethod::kHost;
  Streams streams_;
  EventPool events_;
  BufferPool device_buffers_, pinned_buffers_;
  std::unique_ptr<GroupCalls> calls_;
  int tasks_ = 0;
};

// A fused allreduce of tensors of which at least one lies on the context's device.
struct DeviceCall {
  FusedCall call;
  // One entry for each of view.pieces(), which are not empty: its order with the framework. Null: input and output of
  // this piece are in host memory.
  std::vector<std::shared_ptr<const PooledEvent>> works;
  bool through_host = true;  // also in a context with another method: the ranks agreed on it for this plan
};

// The task is done when the frameworks' streams wait for the results, results in host memory are complete, and
// everything that needs other ranks has also happened on the GPU. What NCCL does not sum, by dtypes and operation, goes
// through host memory, where other ranks may have their tensors already. Every rank makes the same call; without
// `through_host` also ranks whose pieces are all in host memory (a rank that has joined). Different calls of one
// session run concurrently and may begin in any order.
TaskPtr DeviceAllreduce(DeviceContext& context, const AllreduceAlgorithm& rail, const DeviceCall& call);

}  // namespace smddp
