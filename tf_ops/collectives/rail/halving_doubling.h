#pragma once

#include "collectives/rail/algorithm.h"

namespace smddp {

const AllreduceAlgorithm& HalvingDoubling();

}  // namespace smddp
