// From the engine's requests to the kernels' tables. Host code, without CUDA.
#pragma once

#include <vector>

#include "compute/fused_view.h"
#include "core/status.h"
#include "cuda/kernels/job_tables.h"

namespace smddp {

// FusedView::Pack and Unpack as launches, in any order. kBadArgument: elements that are not floating would have to
// be converted or scaled.
Result<std::vector<MoveJob>> PlanPack(const FusedView& view, Range range, void* into);
Result<std::vector<MoveJob>> PlanUnpack(const FusedView& view, Range range, const void* from);

}  // namespace smddp
