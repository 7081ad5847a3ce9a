// Direct exchange: every member is the reducer for an equal slice of the data.
//
//   1. scatter: send slice j to member j, for every j; receive everybody's copy of mine
//   2. sum my slice, in a fixed order (patterns/folded_sum.h), so that a repeated run gives the same bits, also when it
//      chooses another algorithm that sums in this order
//   3. gather:  send my sum to everybody, receive the others'
#include <memory>

#include "collectives/patterns/folded_sum.h"
#include "collectives/rail/direct_exchange.h"
#include "collectives/slice_exchange.h"

namespace smddp {
namespace {

class DirectExchangeTask : public Task {
 public:
  DirectExchangeTask(const Group& group, int my_rank, Transport& transport, const Compute& compute,
                     const RailCall& call)
      : compute_(compute), call_(call), exchange_(group, my_rank, transport, call) {}

  Result<Progress> Step() override {
    if (phase_ == Phase::kStart) {
      received_.reset(new std::byte[exchange_.received_bytes()]);
      SMDDP_RETURN_IF_ERROR(exchange_.Scatter(received_.get()));
      phase_ = Phase::kScatter;
    }
    SMDDP_ASSIGN_OR_RETURN(const bool arrived, exchange_.AllDone());
    if (!arrived) return Progress::kWaiting;
    if (phase_ == Phase::kGather) return Progress::kDone;
    Sum();
    SMDDP_RETURN_IF_ERROR(exchange_.Gather());
    phase_ = Phase::kGather;
    return Progress::kMoved;
  }

  std::string Describe() const override { return "direct exchange between nodes, " + exchange_.Describe(); }

 private:
  enum class Phase { kStart, kScatter, kGather };

  void Sum() {
    const auto reduce = [&](void* into, const void* const* sources, int count) {
      compute_.Reduce(into, sources, count, exchange_.elements(), call_.dtype, call_.op);
      return Status::Ok();
    };
    if (exchange_.elements() > 0) {
      (void)SumTerms(exchange_.Terms(received_.get()), exchange_.mine().data, call_.dtype, reduce);
    }
    received_.reset();
  }

  const Compute& compute_;
  const RailCall call_;
  SliceExchange exchange_;
  Phase phase_ = Phase::kStart;
  std::unique_ptr<std::byte[]> received_;  // all members' copies of my slice, by member
};

AlgorithmCost Cost(int members) { return {2, 2 * (members - 1), 2.0 * (members - 1) / members}; }

class DirectExchangeAlgorithm : public AllreduceAlgorithm {
 public:
  using AllreduceAlgorithm::AllreduceAlgorithm;
  TaskPtr Begin(const Group& group, int my_rank, Transport& transport, const Compute& compute,
                const RailCall& call) const override {
    return std::make_unique<DirectExchangeTask>(group, my_rank, transport, compute, call);
  }
};

}  // namespace

const AllreduceAlgorithm& DirectExchange() {
  static const DirectExchangeAlgorithm algorithm({"direct", "2", "2*(P-1)", "2*S*(P-1)/P", &Cost, SumOrder::kDoubling});
  return algorithm;
}

}  // namespace smddp
