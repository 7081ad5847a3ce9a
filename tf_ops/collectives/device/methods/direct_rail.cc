// GPU-direct between nodes: the same algorithm and the same bits as rail/direct_exchange.cc in host memory; every
// node's rank sums an equal part of each chunk. MPI reads GPU memory without regard to streams, so the host polls
// events before it sends. Received data are visible to everything that is put on streams afterwards.
#include "collectives/device/methods/shard_rail.h"
#include "collectives/patterns/folded_sum.h"
#include "collectives/shard_exchange.h"

namespace smddp {
namespace {

// The exchange of one chunk.
class DirectTask : public Task {
 public:
  DirectTask(DeviceContextImpl& context, const RailCall& call)
      : context_(context),
        dtype_(call.dtype),
        exchange_(context.fabric().topology.rail(), context.fabric().topology.rank(), context.fabric().transport,
                  call) {}

  Result<Progress> Step() override {
    const Phase before = phase_;
    switch (phase_) {
      case Phase::kStart:
        SMDDP_RETURN_IF_ERROR(Scatter());
        phase_ = Phase::kScatter;
        break;
      case Phase::kScatter:
        SMDDP_RETURN_IF_ERROR(Next(exchange_.AllDone(), Phase::kSum, [this] { return Sum(); }));
        break;
      case Phase::kSum:
        SMDDP_RETURN_IF_ERROR(Next(Summed(), Phase::kGather, [this] { return Gather(); }));
        break;
      case Phase::kGather:
        SMDDP_ASSIGN_OR_RETURN(const bool done, exchange_.AllDone());
        if (done) return Progress::kDone;
    }
    return phase_ != before ? Progress::kMoved : Progress::kWaiting;
  }

  std::string Describe() const override {
    return phase_ == Phase::kSum ? "sum of the nodes' shards on the GPU"
                                 : "GPU-direct exchange between nodes, " + exchange_.Describe();
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

  Status Scatter() {
    const size_t bytes = exchange_.received_bytes();
    if (bytes == 0) return exchange_.Scatter(nullptr);
    SMDDP_ASSIGN_OR_RETURN(received_, context_.device_buffers().TakeForHost(bytes));
    return exchange_.Scatter(received_.data());
  }

  Status Sum() {
    if (!received_.held()) return Status::Ok();
    const DeviceStream stream = context_.streams().up();
    const auto reduce = [&](void* into, const void* const* sources, int count) {
      return context_.device().Sum(into, sources, count, exchange_.elements(), dtype_, /*non_finite=*/nullptr, stream);
    };
    SMDDP_RETURN_IF_ERROR(
        context_.While(kSumming, SumTerms(exchange_.Terms(received_.data()), exchange_.mine().data, dtype_, reduce)));
    SMDDP_ASSIGN_OR_RETURN(summed_, context_.Mark(stream));
    return Status::Ok();
  }

  Result<bool> Summed() const { return summed_ != nullptr ? context_.Passed(*summed_, kSumming) : Result<bool>(true); }

  Status Gather() {
    if (received_.held()) received_.GiveBack(summed_);
    return exchange_.Gather();
  }

  static constexpr char kSumming[] = "summing the nodes' gradients";

  DeviceContextImpl& context_;
  const DType dtype_;
  ShardExchange exchange_;
  Phase phase_ = Phase::kStart;
  BufferLease received_;  // all members' copies of my part, by member
  PooledEventPtr summed_;
};

class DirectShardRail : public ShardRail {
 public:
  DirectShardRail(DeviceContextImpl& context, const ShardCall& shard) : context_(context), shard_(shard) {}

  Status Start(const PooledEventPtr& there) override {
    there_ = there;
    return Status::Ok();
  }

  Result<Progress> Step() override {
    bool moved = false;
    if (chunks_ == nullptr) {
      SMDDP_ASSIGN_OR_RETURN(const bool passed, context_.Passed(*there_, "reducing gradients"));
      if (!passed) return Progress::kWaiting;
      shard_.Mark();
      moved = true;
      chunks_ = shard_.InChunks(context_.fabric(), [this](int index, Range range) -> TaskPtr {
        return std::make_unique<DirectTask>(context_,
                                            shard_.Chunk(index, range, static_cast<std::byte*>(shard_.shard)));
      });
    }
    SMDDP_ASSIGN_OR_RETURN(const Progress progress, chunks_->Step());
    if (progress != Progress::kDone) return moved ? Progress::kMoved : progress;
    shard_.Mark();
    end_ = there_;  // the host has seen everything after it complete
    return Progress::kDone;
  }

 private:
  DeviceContextImpl& context_;
  const ShardCall shard_;
  PooledEventPtr there_;
};

}  // namespace

std::unique_ptr<ShardRail> DirectRail(DeviceContextImpl& context, const ShardCall& shard) {
  return std::make_unique<DirectShardRail>(context, shard);
}

}  // namespace smddp
