// Halving-doubling (Rabenseifner): a reduce-scatter by halving, an allgather by doubling (patterns/doubling.h).
#include "collectives/p2p/rounds_task.h"
#include "collectives/patterns/doubling.h"
#include "collectives/rail/all_algorithms.h"

namespace smddp {
namespace {

AlgorithmCost Cost(int members) {
  const Folding folding(members);
  const int fold = folding.pairs() > 0 ? 1 : 0;
  const int exchanges = 2 * folding.doublings();
  return {exchanges + 2 * fold, exchanges + fold, 2.0 * (folding.places() - 1) / folding.places() + fold};
}

}  // namespace

// Partners at distances P/2 ... 1 split and sum what they hold, then give the sums back.
const AllreduceAlgorithm& HalvingDoubling() {
  static const RoundsAlgorithm algorithm({"halving_doubling", "2*log2(Q) + 2*[P>Q]", "2*log2(Q) + [P>Q]",
                                          "2*S*(Q-1)/Q + S*[P>Q]", &Cost, SumOrder::kDoubling},
                                         &HalvingDoublingRounds);
  return algorithm;
}

}  // namespace smddp
