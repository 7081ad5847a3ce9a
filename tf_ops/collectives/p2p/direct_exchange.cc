// Direct exchange: every member is the reducer for an equal shard of the data.
//
//   1. scatter: send shard j to member j, for every j; receive everybody's copy of mine
//   2. sum my shard, in a fixed order (patterns/doubling.h), so that a repeated run gives the same bits, also when it
//      chooses another algorithm that sums in this order
//   3. gather:  send my sum to everybody, receive the others'
//
// Peers are served starting at my right neighbour, so that no member is everybody's first target.
#include "collectives/p2p/direct_exchange.h"

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "collectives/fabric.h"
#include "collectives/patterns/doubling.h"
#include "collectives/transfers.h"
#include "core/shard.h"

namespace smddp {
namespace {

int RoundsAtOnce(size_t message_bytes) {
  const char* e = std::getenv("RAIL_ONCE");
  size_t k = e ? std::atoi(e) : 16384;
  return static_cast<int>(std::max<size_t>(1, k / std::max<size_t>(1, message_bytes)));
}

class DirectExchangeTask : public Task {
 public:
  DirectExchangeTask(const Group& group, int my_rank, Transport& transport, const Compute& compute,
                     const RailCall& call)
      : group_(group),
        me_(group.position_of(my_rank)),
        compute_(compute),
        call_(call),
        transfers_(transport),
        rounds_at_once_(RoundsAtOnce(Bytes(Shard(0)).size)) {
    received_.reset(new std::byte[Bytes(Shard(me_)).size * group_.size()]);
  }

  Result<Progress> Step() override {
    bool moved = false;
    while (true) {
      SMDDP_ASSIGN_OR_RETURN(const bool arrived, transfers_.AllDone());
      if (!arrived) return moved ? Progress::kMoved : Progress::kWaiting;
      moved = true;
      if (next_round_ < group_.size()) {
        SMDDP_RETURN_IF_ERROR(StartRounds());
      } else if (gathering_) {
        return Progress::kDone;
      } else {
        Sum();
        gathering_ = true;
        next_round_ = 1;
      }
    }
  }

  std::string Describe() const override { return "direct exchange between nodes, " + transfers_.Describe(); }

 private:
  Range Shard(int member) const { return ShardOf(call_.elements, SizeOf(call_.dtype), group_.size(), member); }
  BufferView Bytes(Range range) const {
    const size_t each = SizeOf(call_.dtype);
    return call_.data.Slice(range.begin * each, range.size() * each);
  }
  Tag StageTag(uint8_t stage) const { return {call_.operation, stage, call_.step}; }

  // As many rounds as may go at once.
  Status StartRounds() {
    const int last = std::min(group_.size(), next_round_ + rounds_at_once_);
    for (; next_round_ < last; ++next_round_) {
      SMDDP_RETURN_IF_ERROR(gathering_ ? Gather(next_round_) : Scatter(next_round_));
    }
    return Status::Ok();
  }
  int to(int round) const { return (me_ + round) % group_.size(); }
  int from(int round) const { return (me_ - round + group_.size()) % group_.size(); }

  Status Scatter(int round) {
    const Tag tag = StageTag(kRailReduceScatterStage);
    const size_t mine = Bytes(Shard(me_)).size;
    const BufferView place = {received_.get() + mine * from(round), mine};
    SMDDP_RETURN_IF_ERROR(transfers_.Recv(group_.world_rank(from(round)), tag, place));
    return transfers_.Send(group_.world_rank(to(round)), tag, Bytes(Shard(to(round))));
  }

  Status Gather(int round) {
    const Tag tag = StageTag(kRailAllgatherStage);
    SMDDP_RETURN_IF_ERROR(transfers_.Recv(group_.world_rank(from(round)), tag, Bytes(Shard(from(round)))));
    return transfers_.Send(group_.world_rank(to(round)), tag, Bytes(Shard(me_)));
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
        FoldedSum(std::move(terms), mine.data, shard.size());
      }
    }
    received_.reset();
  }

  // The sum of all terms, in the order of recursive doubling. The terms' memory is used up on the way.
  void FoldedSum(std::vector<void*> terms, void* into, int64_t elements) {
    const Folding folding(group_.size());
    std::vector<void*> leaves(folding.places());
    for (int place = 0; place < folding.places(); ++place) {
      const int member = folding.member_at(place);
      leaves[place] = terms[member];
      if (place < folding.pairs()) Add(leaves[place], terms[member - 1], terms[member], elements);
    }
    for (int distance = folding.places() / 2; distance > 0; distance /= 2) {
      for (int place = 0; place < distance; ++place) {
        Add(distance == 1 ? into : leaves[place], leaves[place], leaves[place + distance], elements);
      }
    }
  }
  void Add(void* into, const void* first, const void* second, int64_t elements) const {
    const void* sources[] = {first, second};
    compute_.Reduce(into, sources, 2, elements, call_.dtype, call_.op);
  }

  const Group& group_;
  const int me_;
  const Compute& compute_;
  const RailCall call_;
  Transfers transfers_;
  const int rounds_at_once_;
  int next_round_ = 1;
  bool gathering_ = false;
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
