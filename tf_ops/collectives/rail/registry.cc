// The algorithms between nodes. Those that are lists of rounds (collectives/patterns) are made here.
#include "collectives/p2p/rounds_task.h"
#include "collectives/patterns/doubling.h"
#include "collectives/patterns/ring.h"
#include "collectives/rail/direct_exchange.h"

namespace smddp {
namespace {

AlgorithmCost CostOfRing(int members) {
  const int steps = 2 * (members - 1);
  return {steps, steps, static_cast<double>(steps) / members};
}

AlgorithmCost CostOfRecursiveDoubling(int members) {
  const Folding folding(members);
  const int fold = folding.pairs() > 0 ? 1 : 0;
  return {folding.doublings() + 2 * fold, folding.doublings() + fold, static_cast<double>(folding.doublings() + fold)};
}

AlgorithmCost CostOfHalvingDoubling(int members) {
  const Folding folding(members);
  const int fold = folding.pairs() > 0 ? 1 : 0;
  const int exchanges = 2 * folding.doublings();
  return {exchanges + 2 * fold, exchanges + fold, 2.0 * (folding.places() - 1) / folding.places() + fold};
}

}  // namespace

const std::vector<const AllreduceAlgorithm*>& Algorithms() {
  // Blocks go round from neighbour to neighbour, first to be summed, then as sums.
  static const RoundsAlgorithm ring({"ring", "2*(P-1)", "2*(P-1)", "2*S*(P-1)/P", &CostOfRing, SumOrder::kRing},
                                    &RingRounds);
  // Members exchange and sum everything with partners at distances P/2 ... 1.
  static const RoundsAlgorithm recursive_doubling(
      {"recursive_doubling", "log2(Q) + 2*[P>Q]", "log2(Q) + [P>Q]", "S*(log2(Q) + [P>Q])", &CostOfRecursiveDoubling,
       SumOrder::kDoubling},
      &RecursiveDoublingRounds);
  // Rabenseifner's: partners at distances P/2 ... 1 split and sum what they hold, then give the sums back.
  static const RoundsAlgorithm halving_doubling({"halving_doubling", "2*log2(Q) + 2*[P>Q]", "2*log2(Q) + [P>Q]",
                                                 "2*S*(Q-1)/Q + S*[P>Q]", &CostOfHalvingDoubling, SumOrder::kDoubling},
                                                &HalvingDoublingRounds);
  static const std::vector<const AllreduceAlgorithm*> all = {&DirectExchange(), &ring, &recursive_doubling,
                                                             &halving_doubling};
  return all;
}

const AllreduceAlgorithm* AlgorithmByName(const std::string& name) {
  for (const AllreduceAlgorithm* algorithm : Algorithms()) {
    if (name == algorithm->info().name) return algorithm;
  }
  return nullptr;
}

}  // namespace smddp
