#include "collectives/algorithm.h"
#include "collectives/p2p/direct_exchange.h"

namespace smddp {

const std::vector<const AllreduceAlgorithm*>& Algorithms() {
  static const std::vector<const AllreduceAlgorithm*> all = {&DirectExchange()};
  return all;
}

}  // namespace smddp
