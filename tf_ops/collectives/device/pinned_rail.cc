#include <algorithm>

#include "collectives/device/shard_rail.h"
#include "collectives/device/staging.h"

namespace smddp {
namespace {

class PinnedShardRail : public ShardRail {
 public:
  PinnedShardRail(Lane& lane, const AllreduceAlgorithm& rail, const ShardCall& shard)
      : lane_(lane), rail_(rail), shard_(shard), staging_(lane, shard.shard, shard.elements, shard.dtype()) {}

  Status Start(const MomentPtr& there) override {
    SMDDP_RETURN_IF_ERROR(staging_.Start(*there));
    chunks_ = shard_.InChunks(lane_.fabric(), [this](int index, Range range) {
      return Gated(staging_, range, [this, index, range] { return Chunk(index, range); });
    });
    shard_.Mark();
    return Status::Ok();
  }

  Result<Progress> Step() override {
    SMDDP_ASSIGN_OR_RETURN(const Progress progress, chunks_->Step());
    if (progress != Progress::kDone) return progress;
    chunks_ = nullptr;
    SMDDP_ASSIGN_OR_RETURN(end_, staging_.Finish());
    shard_.Mark();
    return Progress::kDone;
  }

  std::string Describe() const override { return chunks_ != nullptr ? chunks_->Describe() : "waiting for the GPU"; }

 private:
  TaskPtr Chunk(int index, Range range) {
    const Fabric& fabric = lane_.fabric();
    RailCall call;
    call.operation = shard_.call.call.operation;
    call.step = static_cast<uint16_t>(index);
    call.data = {staging_.host() + shard_.bytes_of(range.begin), static_cast<size_t>(shard_.bytes_of(range.size()))};
    call.elements = range.size();
    call.dtype = shard_.dtype();
    call.op = shard_.call.call.op;
    return rail_.Begin(fabric.topology.rail(), fabric.topology.rank(), fabric.world, fabric.compute, call);
  }

  Lane& lane_;
  const AllreduceAlgorithm& rail_;
  const ShardCall shard_;
  Staging staging_;
  TaskPtr chunks_;
};

}  // namespace

TaskPtr ShardCall::InChunks(const Fabric& fabric, const std::function<TaskPtr(int index, Range range)>& chunk) const {
  const int64_t bytes = call.chunking.bytes > 0 ? call.chunking.bytes : fabric.chunk_bytes;
  const int64_t each = std::max<int64_t>(1, bytes / bytes_of(1));
  const int chunks = static_cast<int>((elements + each - 1) / each);
  const int window = call.chunking.in_flight > 0 ? call.chunking.in_flight : DefaultChunksInFlight(fabric.topology);
  return Pipeline(chunks, window, [chunk, each, count = elements](int index) {
    return chunk(index, {index * each, std::min(count, (index + 1) * each)});
  });
}

std::unique_ptr<ShardRail> PinnedRail(Lane& lane, const AllreduceAlgorithm& rail, const ShardCall& shard) {
  return std::make_unique<PinnedShardRail>(lane, rail, shard);
}

}  // namespace smddp
