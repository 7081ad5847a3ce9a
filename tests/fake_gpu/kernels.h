// The kernels of tf_ops/cuda, run by the processor, as work for a stream. Everything that the caller need not keep is
// copied here.
#pragma once

#include <functional>

#include "compute/fused_view.h"

namespace smddp::fake {

using Work = std::function<void()>;

Result<Work> PackWork(int device, const FusedView& view, Range range, void* into);
Result<Work> UnpackWork(int device, const FusedView& view, Range range, const void* from);

}  // namespace smddp::fake
