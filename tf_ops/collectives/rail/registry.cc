#include "collectives/rail/algorithm.h"
#include "collectives/rail/direct_exchange.h"
#include "collectives/rail/halving_doubling.h"
#include "collectives/rail/recursive_doubling.h"
#include "collectives/rail/ring.h"

namespace smddp {

const std::vector<const AllreduceAlgorithm*>& Algorithms() {
  static const std::vector<const AllreduceAlgorithm*> all = {&DirectExchange(), &Ring(), &RecursiveDoubling(),
                                                             &HalvingDoubling()};
  return all;
}

const AllreduceAlgorithm* AlgorithmByName(const std::string& name) {
  for (const AllreduceAlgorithm* algorithm : Algorithms()) {
    if (name == algorithm->info().name) return algorithm;
  }
  return nullptr;
}

}  // namespace smddp
