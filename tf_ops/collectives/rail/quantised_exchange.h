// Direct exchange (rail/direct_exchange.cc) in 8-bit numbers: float32 sums of the nodes are quantised block by block
// (Compute::Quantise), sent to the members that sum them, summed in float32, quantised once more, and sent to all.
// All members, the one that summed included, get the same bits.
//
// Error feedback (Seide et al., "1-Bit Stochastic Gradient Descent", 2014; for both quantisations as in Tang et al.,
// "DoubleSqueeze", 2019): what is rounded away is added to the next sum of the same elements (RailCall::errors).
#pragma once

#include "collectives/rail/algorithm.h"

namespace smddp {

// float32 and kSum only. Not in Algorithms(): it is chosen by the wire dtype, not by size or name.
const AllreduceAlgorithm& QuantisedExchange();

}  // namespace smddp
