#include "collectives/device/shard_rail.h"

#include <algorithm>

namespace smddp {

ShardRail::ShardRail(Lane& lane, const AllreduceAlgorithm& rail, const DeviceCall& call, void* shard, int64_t elements)
    : lane_(lane),
      rail_(rail),
      call_(call),
      elements_(elements),
      dtype_(call.call.view->wire()),
      staging_(lane, shard, elements, dtype_) {}

Status ShardRail::Start(const Moment& there) {
  SMDDP_RETURN_IF_ERROR(staging_.Start(there));
  const Fabric& fabric = lane_.fabric();
  const int64_t bytes = call_.chunking.bytes > 0 ? call_.chunking.bytes : fabric.chunk_bytes;
  const int64_t each = std::max<int64_t>(1, bytes / static_cast<int64_t>(SizeOf(dtype_)));
  const int chunks = static_cast<int>((elements_ + each - 1) / each);
  const int window = call_.chunking.in_flight > 0 ? call_.chunking.in_flight : DefaultChunksInFlight(fabric.topology);
  chunks_ = Pipeline(chunks, window, [this, each](int index) {
    const Range range = {index * each, std::min(elements_, (index + 1) * each)};
    return Gated(staging_, range, [this, index, range] { return Chunk(index, range); });
  });
  if (call_.call.times != nullptr) call_.call.times->Mark(StageTimes::kRailAllreduce);
  return Status::Ok();
}

TaskPtr ShardRail::Chunk(int index, Range range) {
  const Fabric& fabric = lane_.fabric();
  const size_t each = SizeOf(dtype_);
  RailCall call;
  call.operation = call_.call.operation;
  call.step = static_cast<uint16_t>(index);
  call.data = {staging_.host() + range.begin * each, range.size() * each};
  call.elements = range.size();
  call.dtype = dtype_;
  call.op = call_.call.op;
  return rail_.Begin(fabric.topology.rail(), fabric.topology.rank(), fabric.world, fabric.compute, call);
}

Result<Progress> ShardRail::Step() {
  SMDDP_ASSIGN_OR_RETURN(const Progress progress, chunks_->Step());
  if (progress != Progress::kDone) return progress;
  chunks_ = nullptr;
  SMDDP_ASSIGN_OR_RETURN(end_, staging_.Finish());
  if (call_.call.times != nullptr) call_.call.times->Mark(StageTimes::kRailAllreduce);
  return Progress::kDone;
}

}  // namespace smddp
