// The kernels of tf_ops/cuda, run by the processor, as work for a stream. Everything that the caller need not keep is
// copied here.
#pragma once

#include <functional>

#include "compute/fused_view.h"

namespace smddp::fake {

using Work = std::function<void()>;

Result<Work> PackWork(int device, const FusedView& view, Range range, void* into, uint64_t* non_finite);
Result<Work> UnpackWork(int device, const FusedView& view, Range range, const void* from);
Result<Work> SumWork(int device, void* into, const void* const* sources, int count, int64_t elements, DType dtype,
                     uint64_t* non_finite);
// At once, in memory that the host can touch.
void SumHere(void* into, const void* const* sources, int count, int64_t elements, DType dtype);

}  // namespace smddp::fake
