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

 private:
  TaskPtr Chunk(int index, Range range) {
    const Fabric& fabric = lane_.fabric();
    const RailCall call = shard_.Chunk(index, range, staging_.host());
    return rail_.Begin(fabric.topology.rail(), fabric.topology.rank(), fabric.world, fabric.compute, call);
  }

  Lane& lane_;
  const AllreduceAlgorithm& rail_;
  const ShardCall shard_;
  Staging staging_;
};

}  // namespace

std::unique_ptr<ShardRail> PinnedRail(Lane& lane, const AllreduceAlgorithm& rail, const ShardCall& shard) {
  return std::make_unique<PinnedShardRail>(lane, rail, shard);
}

}  // namespace smddp
