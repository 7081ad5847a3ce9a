// From the engine's requests to the kernels' tables. Host code, without CUDA.
#pragma once

#include <cstdint>
#include <vector>

#include "compute/fused_view.h"
#include "core/status.h"
#include "cuda/kernels/job_tables.h"

namespace smddp {

// FusedView::Pack and Unpack as launches, in any order. `non_finite` may be null. kBadArgument: elements that are not
// floating would have to be converted or scaled.
Result<std::vector<MoveJob>> PlanPack(const FusedView& view, Range range, void* into, uint64_t* non_finite);
Result<std::vector<MoveJob>> PlanUnpack(const FusedView& view, Range range, const void* from);

// Device::Sum: moves where there is one source, else one sum. Empty where there is nothing to do.
struct SumPlan {
  std::vector<MoveJob> moves;
  std::vector<SumJob> sums;
};
Result<SumPlan> PlanSum(void* into, const void* const* sources, int count, int64_t elements, DType dtype,
                        uint64_t* non_finite);

}  // namespace smddp
