// The default algorithm between nodes.
#pragma once

#include "collectives/rail/algorithm.h"

namespace smddp {

const AllreduceAlgorithm& DirectExchange();

}  // namespace smddp
