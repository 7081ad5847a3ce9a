// Average is a sum that is divided at the end; this is the only file that implements it.
#pragma once

#include "compute/compute.h"

namespace smddp {

struct Scalings {
  Scaling before, after;
  ReduceOp op;  // Sum, Min, Max or Product
};

inline Scalings ScalingsFor(ReduceOp op, double prescale, double postscale, int size) {
  const bool average = op == ReduceOp::kAverage;
  return {Scaling{prescale, 1}, Scaling{postscale, average ? size : 1}, average ? ReduceOp::kSum : op};
}

}  // namespace smddp
