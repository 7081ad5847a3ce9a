// The algorithms between nodes, one file each; registry.cc lists them.
#pragma once

#include "collectives/rail/algorithm.h"

namespace smddp {

const AllreduceAlgorithm& DirectExchange();
const AllreduceAlgorithm& Ring();
const AllreduceAlgorithm& RecursiveDoubling();
const AllreduceAlgorithm& HalvingDoubling();

}  // namespace smddp
