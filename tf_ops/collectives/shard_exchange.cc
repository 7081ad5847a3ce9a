#include "collectives/shard_exchange.h"

#include "collectives/fabric.h"
#include "core/shard.h"

namespace smddp {

ShardExchange::ShardExchange(const Group& group, int my_rank, Transport& transport, const RailCall& call)
    : group_(group), me_(group.position_of(my_rank)), call_(call), transfers_(transport) {}

Range ShardExchange::Shard(int member) const {
  return ShardOf(call_.elements, SizeOf(call_.dtype), group_.size(), member);
}

BufferView ShardExchange::Bytes(Range range) const {
  const size_t each = SizeOf(call_.dtype);
  return call_.data.Slice(range.begin * each, range.size() * each);
}

// Starts with my right neighbour, so that members do not all send to the same one first.
template <class Visit>
Status ShardExchange::ForEachPeer(Visit visit) {
  for (int round = 1; round < group_.size(); ++round) {
    SMDDP_RETURN_IF_ERROR(visit((me_ + round) % group_.size()));
  }
  return Status::Ok();
}

Status ShardExchange::Scatter(std::byte* received) {
  const size_t each = mine().size;
  return ForEachPeer([&](int peer) {
    const Tag tag = StageTag(kRailReduceScatterStage);
    SMDDP_RETURN_IF_ERROR(transfers_.Recv(group_.world_rank(peer), tag, {received + each * peer, each}));
    return transfers_.Send(group_.world_rank(peer), tag, Bytes(Shard(peer)));
  });
}

std::vector<void*> ShardExchange::Terms(std::byte* received) const {
  std::vector<void*> terms(group_.size());
  for (int member = 0; member < group_.size(); ++member) {
    terms[member] = member == me_ ? mine().data : received + mine().size * member;
  }
  return terms;
}

Status ShardExchange::Gather() {
  return ForEachPeer([&](int peer) {
    if ((peer - me_) % call_.need_every != 0) return Status::Ok();
    const Tag tag = StageTag(kRailAllgatherStage);
    SMDDP_RETURN_IF_ERROR(transfers_.Recv(group_.world_rank(peer), tag, Bytes(Shard(peer))));
    return transfers_.Send(group_.world_rank(peer), tag, mine());
  });
}

}  // namespace smddp
