// The stage between nodes for a shard in GPU memory: summed in place with the shards of the same local rank on the
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
  // kDone: end() marks the sums in GPU memory.
  virtual Result<Progress> Step() = 0;
  std::string Describe() const { return chunks_ != nullptr ? chunks_->Describe() : "waiting for the GPU"; }
  const PooledEventPtr& end() const { return end_; }

 protected:
  TaskPtr chunks_;
  PooledEventPtr end_;
};

// `shard` is a part of the call's bucket, in the wire dtype.
struct ShardCall {
  const DeviceCall& call;
  void* shard = nullptr;
  int64_t elements = 0;

  DType dtype() const { return call.call.view->wire(); }
  TaskPtr InChunks(const Fabric& fabric, std::function<TaskPtr(int index, Range range)> chunk) const {
    return smddp::InChunks(fabric, elements, dtype(), std::move(chunk));
  }
  // One chunk of it; `data` is the start of the whole shard.
  RailCall Chunk(int index, Range range, std::byte* data) const {
    const size_t each = SizeOf(dtype());
    const BufferView chunk(data + range.begin * each, range.size() * each);
    RailCall rail = {call.call.operation, static_cast<uint16_t>(index), chunk, range.size(), dtype(), call.call.op};
    if (call.call.errors != nullptr) rail.errors = call.call.errors->Of(index, range.size());
    return rail;
  }
  void Mark() const {
    if (call.call.times != nullptr) call.call.times->Mark(StageTimes::kRailAllreduce);
  }
};

// Copies to pinned memory chunk by chunk, sums there with `rail`, and copies back.
std::unique_ptr<ShardRail> PinnedRail(DeviceContextImpl& context, const AllreduceAlgorithm& rail,
                                      const ShardCall& shard);

}  // namespace smddp
