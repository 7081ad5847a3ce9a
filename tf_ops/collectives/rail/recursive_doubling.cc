// Recursive doubling: log2 P steps in which members exchange all their data (patterns/doubling.h).
#include "collectives/p2p/rounds_task.h"
#include "collectives/patterns/doubling.h"
#include "collectives/rail/all_algorithms.h"

namespace smddp {
namespace {

AlgorithmCost Cost(int members) {
  const Folding folding(members);
  const int fold = folding.pairs() > 0 ? 1 : 0;
  return {folding.doublings() + 2 * fold, folding.doublings() + fold, static_cast<double>(folding.doublings() + fold)};
}

}  // namespace

// Members exchange and sum everything with partners at distances P/2 ... 1.
const AllreduceAlgorithm& RecursiveDoubling() {
  static const RoundsAlgorithm algorithm(
      {"recursive_doubling", "log2(Q) + 2*[P>Q]", "log2(Q) + [P>Q]", "S*(log2(Q) + [P>Q])", &Cost, SumOrder::kDoubling},
      &RecursiveDoublingRounds);
  return algorithm;
}

}  // namespace smddp
