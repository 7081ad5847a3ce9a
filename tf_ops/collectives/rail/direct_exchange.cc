// Direct exchange: every member is the reducer for an equal slice of the data.
//
//   1. scatter: send slice j to member j, for every j; receive everybody's copy of mine
//   2. sum my slice, in a fixed order, so that a repeated run gives the same bits, also when it chooses another
//      algorithm that sums in this order
//   3. gather:  send my sum to everybody, receive the others'
#include "collectives/rail/direct_exchange.h"

#include <memory>

#include "collectives/patterns/doubling.h"
#include "collectives/slice_exchange.h"

namespace smddp {
namespace {

// Sums one term per member, in the order of recursive doubling (patterns/doubling.h): `add(into, first, second)`.
// `into` may be one of the terms, whose memory is overwritten.
template <class Add>
void FoldedSum(const std::vector<void*>& terms, void* into, Add add) {
  const Folding folding(static_cast<int>(terms.size()));
  std::vector<void*> leaves(folding.places());
  for (int place = 0; place < folding.places(); ++place) {
    const int member = folding.member_at(place);
    leaves[place] = terms[member];
    if (place < folding.pairs()) add(leaves[place], terms[member - 1], terms[member]);
  }
  for (int distance = folding.places() / 2; distance > 0; distance /= 2) {
    for (int place = 0; place < distance; ++place) {
      add(distance == 1 ? into : leaves[place], leaves[place], leaves[place + distance]);
    }
  }
}

class DirectSum {
 public:
  DirectSum(const Group& group, int my_rank, const Compute& compute, const RailCall& call)
      : compute_(compute), call_(call), exchange_(group, my_rank, call) {}

  Status Scatter(Transfers* transfers) {
    received_.reset(new std::byte[exchange_.received_bytes()]);
    return exchange_.Scatter(transfers, received_.get());
  }
  Status SumAndGather(Transfers* transfers) {
    Sum();
    return exchange_.Gather(transfers);
  }

 private:
  // Half types: all terms in one pass, in the order of the members, rounded once. Others: folded.
  void Sum() {
    const std::vector<void*> terms = exchange_.Terms(received_.get());
    const auto reduce = [&](void* into, const void* const* sources, int count) {
      compute_.Reduce(into, sources, count, exchange_.elements(), call_.dtype, call_.op);
    };
    if (IsHalf(call_.dtype)) {
      reduce(exchange_.mine().data, terms.data(), static_cast<int>(terms.size()));
    } else {
      FoldedSum(terms, exchange_.mine().data, [&](void* into, const void* first, const void* second) {
        const void* const sources[] = {first, second};
        reduce(into, sources, 2);
      });
    }
    received_.reset();
  }

  const Compute& compute_;
  const RailCall call_;
  const SliceExchange exchange_;
  std::unique_ptr<std::byte[]> received_;  // all members' copies of my slice, by member
};

AlgorithmCost Cost(int members) { return {2, 2 * (members - 1), 2.0 * (members - 1) / members}; }

TaskPtr Begin(const Group& group, int my_rank, Transport& transport, const Compute& compute, const RailCall& call) {
  const auto sum = std::make_shared<DirectSum>(group, my_rank, compute, call);
  return InStages("direct exchange between nodes", transport,
                  {[sum](Transfers* transfers) { return sum->Scatter(transfers); },
                   [sum](Transfers* transfers) { return sum->SumAndGather(transfers); }});
}

}  // namespace

const AllreduceAlgorithm& DirectExchange() {
  static const AllreduceAlgorithm algorithm = {"direct", &Cost, SumOrder::kDoubling, &Begin};
  return algorithm;
}

}  // namespace smddp
