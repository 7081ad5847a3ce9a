// Ring: blocks go round from neighbour to neighbour, first to be summed, then as sums (patterns/ring.h).
#include "collectives/p2p/ring.h"

#include <memory>

#include "collectives/p2p/rounds_task.h"
#include "collectives/patterns/ring.h"

namespace smddp {
namespace {

AlgorithmCost Cost(int members) {
  const int steps = 2 * (members - 1);
  return {steps, steps, static_cast<double>(steps) / members};
}

class RingAlgorithm : public AllreduceAlgorithm {
 public:
  const AlgorithmInfo& info() const override {
    static const AlgorithmInfo info = {
        "ring",         "blocks go round from neighbour to neighbour, first to be summed, then as sums",
        "2*(P-1)",      "2*(P-1)",
        "2*S*(P-1)/P",  &Cost,
        SumOrder::kRing};
    return info;
  }
  TaskPtr Begin(const Group& group, int my_rank, Transport& transport, const Compute& compute,
                const RailCall& call) const override {
    return RunRounds(info().name, group, transport, compute, call,
                     RingRounds(group.size(), group.position_of(my_rank)));
  }
};

}  // namespace

const AllreduceAlgorithm& Ring() {
  static const RingAlgorithm algorithm;
  return algorithm;
}

}  // namespace smddp
