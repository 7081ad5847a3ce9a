// The messages of a direct exchange: slice j of the data goes to member j, which sends its sum back. The caller
// computes the sum in between.
#pragma once

#include <vector>

#include "collectives/fabric.h"
#include "collectives/transfers.h"
#include "core/slice.h"

namespace smddp {

// Threads:   the engine's.
// Ownership: a task's; the group and the memory are the caller's.
class SliceExchange {
 public:
  SliceExchange(const Group& group, int my_rank, const RailCall& call)
      : group_(group), me_(group.position_of(my_rank)), call_(call) {}

  // The elements that I sum, and where they lie in the data.
  int64_t elements() const { return Slice(me_).size(); }
  BufferView mine() const { return Bytes(Slice(me_)); }
  // The size of the copies of my slice that the other members send.
  size_t received_bytes() const { return mine().size * group_.size(); }
  // Sends each member its slice and receives mine; `received` may be null when it needs no bytes.
  Status Scatter(Transfers* transfers, std::byte* received) const {
    const size_t each = mine().size;
    return ForEachPeer(group_, me_, [&](int peer) {
      const BufferView in = {received + each * peer, each};
      return transfers->Swap(group_.world_rank(peer), StageTag(kRailReduceScatterStage), Bytes(Slice(peer)), in);
    });
  }
  // The copies of my slice by member, my own one in place.
  std::vector<void*> Terms(std::byte* received) const {
    std::vector<void*> terms(group_.size());
    for (int member = 0; member < group_.size(); ++member) {
      terms[member] = member == me_ ? mine().data : received + mine().size * member;
    }
    return terms;
  }
  // Sends my sum, at mine(), to the members that need it (RailCall::need_every) and receives theirs.
  Status Gather(Transfers* transfers) const {
    return ForEachPeer(group_, me_, [&](int peer) {
      if ((peer - me_) % call_.need_every != 0) return Status::Ok();
      return transfers->Swap(group_.world_rank(peer), StageTag(kRailAllgatherStage), mine(), Bytes(Slice(peer)));
    });
  }

 private:
  Range Slice(int member) const { return SliceOf(call_.elements, SizeOf(call_.dtype), group_.size(), member); }
  BufferView Bytes(Range range) const {
    const size_t each = SizeOf(call_.dtype);
    return call_.data.Slice(range.begin * each, range.size() * each);
  }
  Tag StageTag(uint8_t stage) const { return {call_.operation, stage, call_.step}; }

  const Group& group_;
  const int me_;
  const RailCall call_;
};

}  // namespace smddp
