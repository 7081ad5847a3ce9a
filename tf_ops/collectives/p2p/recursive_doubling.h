#pragma once

#include "collectives/algorithm.h"

namespace smddp {

const AllreduceAlgorithm& RecursiveDoubling();

}  // namespace smddp
