// Direct exchange: every member is the reducer for an equal shard of the data.
//
//   1. scatter: send shard j to member j, for every j; receive everybody's copy of mine
//   2. sum my shard, in a fixed order (patterns/doubling.h), so that a repeated run gives the same bits, also when it
//      chooses another algorithm that sums in this order
//   3. gather:  send my sum to everybody, receive the others'
//
// Peers are served starting at my right neighbour, so that no member is everybody's first target.
#include "collectives/p2p/direct_exchange.h"

#include <memory>

#include "collectives/fabric.h"
#include "collectives/patterns/folded_sum.h"
#include "collectives/transfers.h"
#include "core/shard.h"

namespace smddp {
namespace {

class DirectExchangeTask : public Task {
 public:
  DirectExchangeTask(const Group& group, int my_rank, Transport& transport, const Compute& compute,
                     const RailCall& call)
      : group_(group), me_(group.position_of(my_rank)), compute_(compute), call_(call), transfers_(transport) {}

  Result<Progress> Step() override {
    if (phase_ == Phase::kStart) {
      SMDDP_RETURN_IF_ERROR(StartScatter());
      phase_ = Phase::kScatter;
    }
    SMDDP_ASSIGN_OR_RETURN(const bool arrived, transfers_.AllDone());
    if (!arrived) return Progress::kWaiting;
    if (phase_ == Phase::kGather) return Progress::kDone;
    Sum();
    SMDDP_RETURN_IF_ERROR(StartGather());
    phase_ = Phase::kGather;
    return Progress::kMoved;
  }

  std::string Describe() const override { return "direct exchange between nodes, " + transfers_.Describe(); }

 private:
  enum class Phase { kStart, kScatter, kGather };

  Range Shard(int member) const { return ShardOf(call_.elements, SizeOf(call_.dtype), group_.size(), member); }
  BufferView Bytes(Range range) const {
    const size_t each = SizeOf(call_.dtype);
    return call_.data.Slice(range.begin * each, range.size() * each);
  }
  Tag StageTag(uint8_t stage) const { return {call_.operation, stage, call_.step}; }
  template <class Visit>
  Status ForEachPeer(Visit visit) {
    for (int round = 1; round < group_.size(); ++round) {
      SMDDP_RETURN_IF_ERROR(visit((me_ + round) % group_.size()));
    }
    return Status::Ok();
  }

  Status StartScatter() {
    const size_t mine = Bytes(Shard(me_)).size;
    received_.reset(new std::byte[mine * group_.size()]);
    return ForEachPeer([&](int peer) {
      const Tag tag = StageTag(kRailReduceScatterStage);
      SMDDP_RETURN_IF_ERROR(transfers_.Recv(group_.world_rank(peer), tag, {received_.get() + mine * peer, mine}));
      return transfers_.Send(group_.world_rank(peer), tag, Bytes(Shard(peer)));
    });
  }

  void Sum() {
    const Range shard = Shard(me_);
    const BufferView mine = Bytes(shard);
    std::vector<void*> terms(group_.size());
    for (int member = 0; member < group_.size(); ++member) {
      terms[member] = member == me_ ? mine.data : received_.get() + mine.size * member;
    }
    if (!shard.empty()) {
      if (IsHalf(call_.dtype)) {
        compute_.Reduce(mine.data, terms.data(), group_.size(), shard.size(), call_.dtype, call_.op);
      } else {
        (void)FoldedSum(terms, mine.data, [&](void* into, const void* first, const void* second) {
          const void* sources[] = {first, second};
          compute_.Reduce(into, sources, 2, shard.size(), call_.dtype, call_.op);
          return Status::Ok();
        });
      }
    }
    received_.reset();
  }

  Status StartGather() {
    return ForEachPeer([&](int peer) {
      const Tag tag = StageTag(kRailAllgatherStage);
      SMDDP_RETURN_IF_ERROR(transfers_.Recv(group_.world_rank(peer), tag, Bytes(Shard(peer))));
      return transfers_.Send(group_.world_rank(peer), tag, Bytes(Shard(me_)));
    });
  }

  const Group& group_;
  const int me_;
  const Compute& compute_;
  const RailCall call_;
  Transfers transfers_;
  Phase phase_ = Phase::kStart;
  std::unique_ptr<std::byte[]> received_;  // everybody's copy of my shard, by member
};

class DirectExchangeAlgorithm : public AllreduceAlgorithm {
 public:
  const AlgorithmInfo& info() const override {
    static const AlgorithmInfo info = {
        "direct",
        "every member sums an equal shard: scatter to all, sum, gather from all",
        "2",
        "2*(P-1)",
        "2*S*(P-1)/P",
        [](int members) -> AlgorithmCost { return {2, 2 * (members - 1), 2.0 * (members - 1) / members}; },
        SumOrder::kDoubling};
    return info;
  }
  TaskPtr Begin(const Group& group, int my_rank, Transport& transport, const Compute& compute,
                const RailCall& call) const override {
    return std::make_unique<DirectExchangeTask>(group, my_rank, transport, compute, call);
  }
};

}  // namespace

const AllreduceAlgorithm& DirectExchange() {
  static const DirectExchangeAlgorithm algorithm;
  return algorithm;
}

}  // namespace smddp
