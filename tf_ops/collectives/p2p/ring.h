#pragma once

#include "collectives/algorithm.h"

namespace smddp {

const AllreduceAlgorithm& Ring();

}  // namespace smddp
