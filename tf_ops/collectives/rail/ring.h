#pragma once

#include "collectives/rail/algorithm.h"

namespace smddp {

const AllreduceAlgorithm& Ring();

}  // namespace smddp
