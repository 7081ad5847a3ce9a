// Can the result of a reduction be right? The sums of what the ranks brought say it, within rounding; for Min and Max
// the least and the largest element do. Integers are compared exactly, modulo what their dtype holds.
//
// A change that is smaller than what rounding may do to a part of a tensor is not found this way. Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "compute/compute.h"
#include "core/dtype.h"

namespace smddp {

enum class Fold { kNone, kSum, kMin, kMax };

// What is known of one part of a tensor.
struct PartSum {
  double value = 0;      // the sum of its elements, or the least, or the largest
  double magnitude = 0;  // the sum of their absolute values
  uint64_t exact = 0;    // of integers the sum modulo 2^64
};
PartSum SumPart(const void* data, DType dtype, int64_t elements, Fold fold, const Compute& compute);

struct SumRule {
  DType dtype = DType::kFloat32, wire = DType::kFloat32;
  Fold fold = Fold::kNone;
  Scaling before, after;
};
// kNone where nothing can be said: of Product and Adasum, and of integers that are scaled.
SumRule SumRuleFor(DType dtype, DType wire, ReduceOp op, double prescale, double postscale, int ranks);

struct SumVerdict {
  bool right = true;
  double expected = 0, tolerance = 0;
};
// `inputs` are those of all ranks for one part of `elements` elements, `output` is the result's.
SumVerdict CompareSums(const SumRule& rule, const std::vector<PartSum>& inputs, const PartSum& output,
                       int64_t elements);

}  // namespace smddp
