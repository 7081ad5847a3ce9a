// Average is a sum that is divided at the end; this is the only file that implements it.
#pragma once

#include "compute/compute.h"
#include "fusion/plan.h"

namespace smddp {

struct Scalings {
  Scaling before, after;
  ReduceOp op;  // Sum, Min, Max or Product
};

inline Scalings ScalingsFor(const Arithmetic& of, int size) {
  const bool average = of.op == ReduceOp::kAverage;
  return {Scaling{of.prescale, 1}, Scaling{of.postscale, average ? size : 1}, average ? ReduceOp::kSum : of.op};
}

}  // namespace smddp
