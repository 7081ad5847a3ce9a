#include "collectives/device/methods/device_bucket.h"

#include "core/shard.h"

namespace smddp {

Status DeviceBucket::Start(int64_t elements) {
  const DeviceStream pack = context_.streams().pack();
  SMDDP_ASSIGN_OR_RETURN(memory_, context_.device_buffers().Take(elements * SizeOf(wire()), pack));
  SMDDP_ASSIGN_OR_RETURN(packed_, tensors_.Pack(memory_.data()));
  return Status::Ok();
}

Range DeviceBucket::shard_of(int member) const {
  const int reducers = context_.fabric().topology.rail_count();
  if (member >= reducers) return {elements(), elements()};
  return ShardOf(elements(), SizeOf(wire()), reducers, member);
}

Result<Progress> DeviceBucket::Rail(const PooledEventPtr& there) {
  if (chunks_ == nullptr) {
    const Fabric& fabric = context_.fabric();
    const Range mine = my_shard();
    if (fabric.topology.node_count() == 1 || mine.empty()) {
      sums_ = there;
      return Progress::kDone;
    }
    pinned_copy_.emplace(context_, at(mine.begin), mine.size(), wire());
    SMDDP_RETURN_IF_ERROR(pinned_copy_->Start(*there));
    chunks_ = InChunks(fabric, mine.size(), wire(), [this](int index, Range range) {
      return Gated(*pinned_copy_, range, [this, index, range] { return Chunk(index, range); });
    });
    Mark(StageTimes::kRailAllreduce);
  }
  SMDDP_ASSIGN_OR_RETURN(const Progress progress, chunks_->Step());
  if (progress != Progress::kDone) return progress;
  chunks_ = nullptr;
  SMDDP_ASSIGN_OR_RETURN(sums_, pinned_copy_->Finish());
  Mark(StageTimes::kRailAllreduce);
  return Progress::kDone;
}

TaskPtr DeviceBucket::Chunk(int index, Range range) {
  const Fabric& fabric = context_.fabric();
  const size_t each = SizeOf(wire());
  const BufferView chunk(pinned_copy_->host() + range.begin * each, range.size() * each);
  RailCall call = {operation(), static_cast<uint16_t>(index), chunk, range.size(), wire(), call_.call.op};
  if (call_.call.errors != nullptr) call.errors = call_.call.errors->Of(index, range.size());
  return rail_.Begin(fabric.topology.rail(), fabric.topology.rank(), fabric.transport, fabric.compute, call);
}

}  // namespace smddp
