// The arithmetic of the fake GPU, as work for a stream: everything that the caller need not keep is copied here.
#pragma once

#include <functional>

#include "compute/fused_view.h"

namespace smddp::fake {

std::function<void()> PackWork(int device, const FusedView& view, Range range, void* into, uint64_t* non_finite);
std::function<void()> UnpackWork(int device, const FusedView& view, Range range, const void* from);
std::function<void()> SumWork(int device, void* into, const void* const* sources, int count, int64_t elements,
                              DType dtype, uint64_t* non_finite);

}  // namespace smddp::fake
