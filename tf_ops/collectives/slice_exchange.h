// The messages of a direct exchange: slice j of the data goes to member j, which sends its sum back. The caller
// computes the sum in between (patterns/folded_sum.h), in host memory or on a GPU.
#pragma once

#include <vector>

#include "collectives/rail/algorithm.h"
#include "collectives/transfers.h"

namespace smddp {

// Threads:   the engine's.
// Ownership: a task's; the group and the memory are the caller's.
class SliceExchange {
 public:
  SliceExchange(const Group& group, int my_rank, Transport& transport, const RailCall& call);

  // The elements that I sum, and where they lie in the data.
  int64_t elements() const { return Slice(me_).size(); }
  BufferView mine() const { return Bytes(Slice(me_)); }
  // The size of the copies of my slice that the other members send.
  size_t received_bytes() const { return mine().size * group_.size(); }
  // Sends each member its slice and receives mine; `received` may be null when it needs no bytes.
  Status Scatter(std::byte* received);
  // The copies of my slice by member, my own one in place.
  std::vector<void*> Terms(std::byte* received) const;
  // Sends my sum, at mine(), to the members that need it (RailCall::need_every) and receives theirs.
  Status Gather();
  // Has everything that was started arrived?
  Result<bool> AllDone() { return transfers_.AllDone(); }
  std::string Describe() const { return transfers_.Describe(); }

 private:
  Range Slice(int member) const;
  BufferView Bytes(Range range) const;
  Tag StageTag(uint8_t stage) const { return {call_.operation, stage, call_.step}; }

  const Group& group_;
  const int me_;
  const RailCall call_;
  Transfers transfers_;
};

}  // namespace smddp
