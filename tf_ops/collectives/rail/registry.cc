#include "collectives/rail/all_algorithms.h"

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
