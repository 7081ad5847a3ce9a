// The stage between the nodes for a shard in GPU memory: chunk by chunk to pinned memory, summed with the same local
// rank of the other nodes, and back.
#pragma once

#include "collectives/device/staging.h"

namespace smddp {

// Threads:   the engine's.
// Ownership: a task's; the shard is the caller's.
class ShardRail {
 public:
  // `shard` is a part of the call's bucket as it travels.
  ShardRail(Lane& lane, const AllreduceAlgorithm& rail, const DeviceCall& call, void* shard, int64_t elements);

  // Begins after `there`.
  Status Start(const Moment& there);
  // True: end() stands for the sums in GPU memory.
  Result<Progress> Step();
  const MomentPtr& end() const { return end_; }
  std::string Describe() const { return chunks_ != nullptr ? chunks_->Describe() : "waiting for the GPU"; }

 private:
  TaskPtr Chunk(int index, Range range);

  Lane& lane_;
  const AllreduceAlgorithm& rail_;
  const DeviceCall& call_;
  const int64_t elements_;
  const DType dtype_;
  Staging staging_;
  TaskPtr chunks_;
  MomentPtr end_;
};

}  // namespace smddp
