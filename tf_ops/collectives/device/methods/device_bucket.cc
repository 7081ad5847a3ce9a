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
  if (!rail_stage_) {
    const Range mine = my_shard();
    if (context_.fabric().topology.node_count() == 1 || mine.empty()) {
      sums_ = there;
      return Progress::kDone;
    }
    const ShardCall shard = {call_, at(mine.begin), mine.size()};
    rail_stage_ = PinnedRail(context_, rail_, shard);
    SMDDP_RETURN_IF_ERROR(rail_stage_->Start(there));
  }
  SMDDP_ASSIGN_OR_RETURN(const Progress progress, rail_stage_->Step());
  if (progress == Progress::kDone) {
    sums_ = rail_stage_->end();
    rail_stage_.reset();
  }
  return progress;
}

}  // namespace smddp
