#pragma once

#include "collectives/algorithm.h"

namespace smddp {

const AllreduceAlgorithm& DirectExchange();

}  // namespace smddp
