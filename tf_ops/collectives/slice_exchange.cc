#include "collectives/slice_exchange.h"

#include "collectives/fabric.h"
#include "core/slice.h"

namespace smddp {

SliceExchange::SliceExchange(const Group& group, int my_rank, Transport& transport, const RailCall& call)
    : group_(group), me_(group.position_of(my_rank)), call_(call), transfers_(transport) {}

Range SliceExchange::Slice(int member) const {
  return SliceOf(call_.elements, SizeOf(call_.dtype), group_.size(), member);
}

BufferView SliceExchange::Bytes(Range range) const {
  const size_t each = SizeOf(call_.dtype);
  return call_.data.Slice(range.begin * each, range.size() * each);
}

Status SliceExchange::Scatter(std::byte* received) {
  const size_t each = mine().size;
  return ForEachPeer(group_, me_, [&](int peer) {
    const Tag tag = StageTag(kRailReduceScatterStage);
    SMDDP_RETURN_IF_ERROR(transfers_.Recv(group_.world_rank(peer), tag, {received + each * peer, each}));
    return transfers_.Send(group_.world_rank(peer), tag, Bytes(Slice(peer)));
  });
}

std::vector<void*> SliceExchange::Terms(std::byte* received) const {
  std::vector<void*> terms(group_.size());
  for (int member = 0; member < group_.size(); ++member) {
    terms[member] = member == me_ ? mine().data : received + mine().size * member;
  }
  return terms;
}

Status SliceExchange::Gather() {
  return ForEachPeer(group_, me_, [&](int peer) {
    if ((peer - me_) % call_.need_every != 0) return Status::Ok();
    const Tag tag = StageTag(kRailAllgatherStage);
    SMDDP_RETURN_IF_ERROR(transfers_.Recv(group_.world_rank(peer), tag, Bytes(Slice(peer))));
    return transfers_.Send(group_.world_rank(peer), tag, mine());
  });
}

}  // namespace smddp
