#include "collectives/device/methods/pinned_copy.h"
#include "collectives/device/methods/shard_rail.h"

namespace smddp {
namespace {

class PinnedShardRail : public ShardRail {
 public:
  PinnedShardRail(DeviceContextImpl& context, const AllreduceAlgorithm& rail, const ShardCall& shard)
      : context_(context),
        rail_(rail),
        shard_(shard),
        pinned_copy_(context, shard.shard, shard.elements, shard.dtype()) {}

  Status Start(const PooledEventPtr& there) override {
    SMDDP_RETURN_IF_ERROR(pinned_copy_.Start(*there));
    chunks_ = shard_.InChunks(context_.fabric(), [this](int index, Range range) {
      return Gated(pinned_copy_, range, [this, index, range] { return Chunk(index, range); });
    });
    shard_.Mark();
    return Status::Ok();
  }

  Result<Progress> Step() override {
    SMDDP_ASSIGN_OR_RETURN(const Progress progress, chunks_->Step());
    if (progress != Progress::kDone) return progress;
    chunks_ = nullptr;
    SMDDP_ASSIGN_OR_RETURN(end_, pinned_copy_.Finish());
    shard_.Mark();
    return Progress::kDone;
  }

 private:
  TaskPtr Chunk(int index, Range range) {
    const Fabric& fabric = context_.fabric();
    const RailCall call = shard_.Chunk(index, range, pinned_copy_.host());
    return rail_.Begin(fabric.topology.rail(), fabric.topology.rank(), fabric.transport, fabric.compute, call);
  }

  DeviceContextImpl& context_;
  const AllreduceAlgorithm& rail_;
  const ShardCall shard_;
  PinnedCopy pinned_copy_;
};

}  // namespace

std::unique_ptr<ShardRail> PinnedRail(DeviceContextImpl& context, const AllreduceAlgorithm& rail,
                                      const ShardCall& shard) {
  return std::make_unique<PinnedShardRail>(context, rail, shard);
}

}  // namespace smddp
