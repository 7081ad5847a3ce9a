#include "collectives/rail/quantised_exchange.h"

#include <memory>

#include "collectives/fabric.h"
#include "collectives/transfers.h"
#include "core/check.h"
#include "core/slice.h"

namespace smddp {
namespace {

class QuantisedSum {
 public:
  QuantisedSum(const Group& group, int my_rank, const Compute& compute, const RailCall& call)
      : group_(group), me_(group.position_of(my_rank)), compute_(compute), call_(call) {
    SMDDP_CHECK(call.dtype == DType::kFloat32 && call.op == ReduceOp::kSum);
  }

  // Of a pair of members, both have memory for what the other sends in either stage.
  Status Scatter(Transfers* transfers) {
    const size_t most = BytesOf(0);
    sent_.reset(new std::byte[most * group_.size()]);
    received_.reset(new std::byte[most * group_.size()]);
    return ForEachPeer(group_, me_, [&](int peer) {
      Quantise(peer, Sent(peer));
      return transfers->Swap(group_.world_rank(peer), StageTag(kRailReduceScatterStage), {Sent(peer), BytesOf(peer)},
                             {Received(peer), BytesOf(me_)});
    });
  }

  // In the order of the members, my own term first.
  Status SumAndGather(Transfers* transfers) {
    const int64_t mine = Slice(me_).size();
    for (int member = 0; member < group_.size(); ++member) {
      if (member != me_) compute_.Dequantise(Values(me_), Received(member), mine, /*add=*/true);
    }
    Quantise(me_, Sent(me_));
    return ForEachPeer(group_, me_, [&](int peer) {
      if (!Needs(peer)) return Status::Ok();
      return transfers->Swap(group_.world_rank(peer), StageTag(kRailAllgatherStage), {Sent(me_), BytesOf(me_)},
                             {Received(peer), BytesOf(peer)});
    });
  }

  Status Decode() {
    for (int member = 0; member < group_.size(); ++member) {
      if (member == me_ || !Needs(member)) continue;
      compute_.Dequantise(Values(member), Received(member), Slice(member).size(), /*add=*/false);
    }
    return Status::Ok();
  }

 private:
  Range Slice(int member) const { return SliceOf(call_.elements, sizeof(float), group_.size(), member); }
  size_t BytesOf(int member) const { return QuantisedBytes(Slice(member).size()); }
  float* Values(int member) const { return reinterpret_cast<float*>(call_.data.data) + Slice(member).begin; }
  float* Errors(int member) const { return call_.errors == nullptr ? nullptr : call_.errors + Slice(member).begin; }
  Tag StageTag(uint8_t stage) const { return {call_.operation, stage, call_.step}; }

  void Quantise(int member, std::byte* into) {
    compute_.Quantise(into, Values(member), Errors(member), Slice(member).size());
  }

  bool Needs(int peer) const { return (peer - me_) % call_.need_every == 0; }
  std::byte* Sent(int member) const { return sent_.get() + BytesOf(0) * member; }
  std::byte* Received(int member) const { return received_.get() + BytesOf(0) * member; }

  const Group& group_;
  const int me_;
  const Compute& compute_;
  const RailCall call_;
  std::unique_ptr<std::byte[]> sent_, received_;  // by member
};

AlgorithmCost Cost(int members) { return {2, 2 * (members - 1), 2.0 * (members - 1) / members * 129 / 512}; }

TaskPtr Begin(const Group& group, int my_rank, Transport& transport, const Compute& compute, const RailCall& call) {
  const auto sum = std::make_shared<QuantisedSum>(group, my_rank, compute, call);
  return InStages("8-bit exchange between nodes", transport,
                  {[sum](Transfers* transfers) { return sum->Scatter(transfers); },
                   [sum](Transfers* transfers) { return sum->SumAndGather(transfers); },
                   [sum](Transfers*) { return sum->Decode(); }});
}

}  // namespace

const AllreduceAlgorithm& QuantisedExchange() {
  static const AllreduceAlgorithm algorithm = {"int8", &Cost, SumOrder::kDoubling, &Begin, /*exact=*/false};
  return algorithm;
}

}  // namespace smddp
