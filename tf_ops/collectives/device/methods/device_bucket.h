// What the methods between GPUs share: the packed bucket in GPU memory, the exchange between nodes, and unpacking.
#pragma once

#include <optional>

#include "collectives/device/methods/pinned_copy.h"
#include "collectives/device/methods/tensors.h"

namespace smddp {

// Threads:   the engine's.
// Ownership: a task's.
class DeviceBucket {
 public:
  DeviceBucket(DeviceContext& context, const AllreduceAlgorithm& rail, const DeviceCall& call)
      : context_(context), rail_(rail), call_(call), tensors_(context, call_) {}

  // Packs into memory of at least `elements`.
  Status Start(int64_t elements);
  BufferLease& memory() { return memory_; }
  std::byte* at(int64_t element) const { return memory_.data() + element * SizeOf(wire()); }
  const PooledEventPtr& packed() const { return packed_; }
  int64_t elements() const { return call_.call.view->elements(); }
  DType wire() const { return call_.call.view->wire(); }
  uint32_t operation() const { return call_.call.operation; }
  // The part of the bucket that local rank `member` sums; empty for ranks that are not reducers.
  Range shard_of(int member) const;
  Range my_shard() const { return shard_of(context_.fabric().topology.local_rank()); }

  // Sums my shard with those of the other nodes, after `there`: in pinned memory, chunk by chunk. When it returns
  // kDone, sums() marks the result in GPU memory. Returns kDone immediately when there is nothing to do.
  Result<Progress> Rail(const PooledEventPtr& there);
  const PooledEventPtr& sums() const { return sums_; }

  DeviceTensors& tensors() { return tensors_; }
  void Mark(StageTimes::Stage stage) const {
    if (call_.call.times != nullptr) call_.call.times->Mark(stage);
  }
  std::string Describe() const { return chunks_ != nullptr ? chunks_->Describe() : "waiting for the GPU"; }

 private:
  // One chunk of my shard.
  TaskPtr Chunk(int index, Range range);

  DeviceContext& context_;
  const AllreduceAlgorithm& rail_;
  const DeviceCall call_;
  DeviceTensors tensors_;
  BufferLease memory_;
  PooledEventPtr packed_, sums_;
  std::optional<PinnedCopy> pinned_copy_;  // of my shard
  TaskPtr chunks_;                         // refer to it
};

}  // namespace smddp
