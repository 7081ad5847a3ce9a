// Ring: blocks pass from neighbour to neighbour, first to be summed, then as sums (patterns/ring.h).
#include "collectives/patterns/ring.h"

#include "collectives/p2p/rounds_task.h"
#include "collectives/rail/all_algorithms.h"

namespace smddp {
namespace {

AlgorithmCost Cost(int members) {
  const int steps = 2 * (members - 1);
  return {steps, steps, static_cast<double>(steps) / members};
}

}  // namespace

// Blocks go round from neighbour to neighbour, first to be summed, then as sums.
const AllreduceAlgorithm& Ring() {
  static const RoundsAlgorithm algorithm({"ring", "2*(P-1)", "2*(P-1)", "2*S*(P-1)/P", &Cost, SumOrder::kRing},
                                         &RingRounds);
  return algorithm;
}

}  // namespace smddp
