// GPU-direct between nodes, as p2p/direct_exchange.cc does it in host memory, with the same bits: every node's rank
// sums an equal part of each chunk. What MPI is to send must be there, so the host looks at events before it sends;
// what MPI has received is there for all that is put on streams afterwards.
#include "collectives/device/shard_rail.h"
#include "collectives/fabric.h"
#include "collectives/patterns/folded_sum.h"
#include "collectives/transfers.h"
#include "core/shard.h"

namespace smddp {
namespace {

// A chunk.
class DirectTask : public Task {
 public:
  DirectTask(Lane& lane, const ShardCall& shard, int index, Range range)
      : lane_(lane),
        group_(lane.fabric().topology.rail()),
        me_(group_.position_of(lane.fabric().topology.rank())),
        shard_(shard),
        data_(static_cast<std::byte*>(shard.shard) + shard.bytes_of(range.begin)),
        elements_(range.size()),
        step_(static_cast<uint16_t>(index)),
        transfers_(lane.fabric().world) {}

  Result<Progress> Step() override {
    const Phase before = phase_;
    switch (phase_) {
      case Phase::kStart:
        SMDDP_RETURN_IF_ERROR(Scatter());
        phase_ = Phase::kScatter;
        break;
      case Phase::kScatter:
        SMDDP_RETURN_IF_ERROR(Next(transfers_.AllDone(), Phase::kSum, [this] { return Sum(); }));
        break;
      case Phase::kSum:
        SMDDP_RETURN_IF_ERROR(Next(Summed(), Phase::kGather, [this] { return Gather(); }));
        break;
      case Phase::kGather:
        SMDDP_ASSIGN_OR_RETURN(const bool done, transfers_.AllDone());
        if (done) return Progress::kDone;
    }
    return phase_ != before ? Progress::kMoved : Progress::kWaiting;
  }

  std::string Describe() const override {
    return phase_ == Phase::kSum ? "sum of the nodes' shards on the GPU"
                                 : "GPU-direct exchange between nodes, " + transfers_.Describe();
  }

 private:
  enum class Phase { kStart, kScatter, kSum, kGather };

  template <class Begin>
  Status Next(const Result<bool>& may, Phase next, Begin begin) {
    SMDDP_RETURN_IF_ERROR(may.status());
    if (!*may) return Status::Ok();
    phase_ = next;
    return begin();
  }

  Range Part(int member) const { return ShardOf(elements_, SizeOf(shard_.dtype()), group_.size(), member); }
  BufferView Bytes(Range range) const {
    return {data_ + shard_.bytes_of(range.begin), static_cast<size_t>(shard_.bytes_of(range.size()))};
  }
  Tag StageTag(uint8_t stage) const { return {shard_.call.call.operation, stage, step_}; }
  // Beginning with my right neighbour, so that no member is everybody's first target.
  template <class Visit>
  Status ForEachPeer(Visit visit) {
    for (int round = 1; round < group_.size(); ++round) {
      SMDDP_RETURN_IF_ERROR(visit((me_ + round) % group_.size()));
    }
    return Status::Ok();
  }

  Status Scatter() {
    const size_t mine = Bytes(Part(me_)).size;
    if (mine > 0) {
      SMDDP_ASSIGN_OR_RETURN(received_, lane_.device_blocks().TakeForHost(mine * group_.size()));
    }
    return ForEachPeer([&](int peer) -> Status {
      const Tag tag = StageTag(kRailReduceScatterStage);
      const BufferView into = {mine > 0 ? received_.data() + mine * peer : nullptr, mine};
      SMDDP_RETURN_IF_ERROR(transfers_.Recv(group_.world_rank(peer), tag, into));
      return transfers_.Send(group_.world_rank(peer), tag, Bytes(Part(peer)));
    });
  }

  Status Sum() {
    if (!received_.held()) return Status::Ok();
    const BufferView mine = Bytes(Part(me_));
    std::vector<void*> terms(group_.size());
    for (int member = 0; member < group_.size(); ++member) {
      terms[member] = member == me_ ? mine.data : received_.data() + mine.size * member;
    }
    SMDDP_RETURN_IF_ERROR(lane_.While("summing the nodes' gradients", SumOf(terms, mine.data)));
    SMDDP_ASSIGN_OR_RETURN(summed_, lane_.Mark(lane_.streams().rail()));
    return Status::Ok();
  }

  Status SumOf(const std::vector<void*>& terms, void* into) {
    const auto sum = [&](void* to, const void* const* sources, int count) {
      return lane_.device().Sum(to, sources, count, Part(me_).size(), shard_.dtype(), /*non_finite=*/nullptr,
                                lane_.streams().rail());
    };
    if (IsHalf(shard_.dtype())) return sum(into, terms.data(), group_.size());
    return FoldedSum(terms, into, [&](void* to, const void* first, const void* second) {
      const void* const sources[] = {first, second};
      return sum(to, sources, 2);
    });
  }

  Result<bool> Summed() const {
    if (summed_ == nullptr) return true;
    const Result<bool> passed = summed_->Passed();
    if (!passed.ok()) return lane_.While("summing the nodes' gradients", passed.status());
    return passed;
  }

  Status Gather() {
    if (received_.held()) received_.GiveBack(summed_);
    return ForEachPeer([&](int peer) -> Status {
      const Tag tag = StageTag(kRailAllgatherStage);
      SMDDP_RETURN_IF_ERROR(transfers_.Recv(group_.world_rank(peer), tag, Bytes(Part(peer))));
      return transfers_.Send(group_.world_rank(peer), tag, Bytes(Part(me_)));
    });
  }

  Lane& lane_;
  const Group& group_;
  const int me_;
  const ShardCall shard_;
  std::byte* const data_;
  const int64_t elements_;
  const uint16_t step_;
  Transfers transfers_;
  Phase phase_ = Phase::kStart;
  Memory received_;  // everybody's copy of my part, by member
  MomentPtr summed_;
};

class DirectShardRail : public ShardRail {
 public:
  DirectShardRail(Lane& lane, const ShardCall& shard) : lane_(lane), shard_(shard) {}

  Status Start(const MomentPtr& there) override {
    there_ = there;
    return Status::Ok();
  }

  Result<Progress> Step() override {
    bool moved = false;
    if (chunks_ == nullptr) {
      const Result<bool> passed = there_->Passed();
      SMDDP_RETURN_IF_ERROR(lane_.While("reducing gradients", passed.status()));
      if (!*passed) return Progress::kWaiting;
      shard_.Mark();
      moved = true;
      chunks_ = shard_.InChunks(lane_.fabric(), [this](int index, Range range) -> TaskPtr {
        return std::make_unique<DirectTask>(lane_, shard_, index, range);
      });
    }
    SMDDP_ASSIGN_OR_RETURN(const Progress progress, chunks_->Step());
    if (progress != Progress::kDone) return moved ? Progress::kMoved : progress;
    shard_.Mark();
    end_ = there_;  // the host has seen all that came after it
    return Progress::kDone;
  }

  std::string Describe() const override { return chunks_ != nullptr ? chunks_->Describe() : "waiting for the GPU"; }

 private:
  Lane& lane_;
  const ShardCall shard_;
  MomentPtr there_;
  TaskPtr chunks_;
};

}  // namespace

std::unique_ptr<ShardRail> DirectRail(Lane& lane, const ShardCall& shard) {
  return std::make_unique<DirectShardRail>(lane, shard);
}

}  // namespace smddp
