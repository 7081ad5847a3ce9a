// The stage between the nodes for a shard in GPU memory: summed in place with those of the same local rank of the
// other nodes.
#pragma once

#include <memory>
#include <string>

#include "collectives/device/device_context_impl.h"

namespace smddp {

// Threads:   the engine's.
// Ownership: a task's; the shard is the caller's.
class ShardRail {
 public:
  virtual ~ShardRail() = default;
  // Begins after `there`.
  virtual Status Start(const PooledEventPtr& there) = 0;
  // True: end() stands for the sums in GPU memory.
  virtual Result<Progress> Step() = 0;
  std::string Describe() const { return chunks_ != nullptr ? chunks_->Describe() : "waiting for the GPU"; }
  const PooledEventPtr& end() const { return end_; }

 protected:
  TaskPtr chunks_;
  PooledEventPtr end_;
};

// `shard` is a part of the call's bucket as it travels.
struct ShardCall {
  const DeviceCall& call;
  void* shard = nullptr;
  int64_t elements = 0;

  DType dtype() const { return call.call.view->wire(); }
  TaskPtr InChunks(const Fabric& fabric, std::function<TaskPtr(int index, Range range)> chunk) const {
    return smddp::InChunks(fabric, elements, dtype(), std::move(chunk));
  }
  // A chunk of it, where all of it lies at `data`.
  RailCall Chunk(int index, Range range, std::byte* data) const;
  void Mark() const {
    if (call.call.times != nullptr) call.call.times->Mark(StageTimes::kRailAllreduce);
  }
};

// Chunk by chunk to pinned memory, summed there by `rail`, and back.
std::unique_ptr<ShardRail> PinnedRail(DeviceContextImpl& context, const AllreduceAlgorithm& rail,
                                      const ShardCall& shard);
// GPU-direct: messages from and to GPU memory, through an MPI that takes it; sums on the GPU.
std::unique_ptr<ShardRail> DirectRail(DeviceContextImpl& context, const ShardCall& shard);

}  // namespace smddp
