#pragma once

#include "collectives/algorithm.h"

namespace smddp {

const AllreduceAlgorithm& HalvingDoubling();

}  // namespace smddp
