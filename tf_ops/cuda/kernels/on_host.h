// The kernels run by the processor, block after block and thread after thread, with the very functions that the GPU
// runs. For tests, and for the tests' fake GPU.
#pragma once

#include <cstdint>

#include "cuda/kernels/jobs.h"

namespace smddp {

// As a launch of `blocks` with `threads` each; any numbers from 1 give the same result.
void RunOnHost(const MoveJob& job, uint32_t blocks, uint32_t threads);
void RunOnHost(const SumJob& job, uint32_t blocks, uint32_t threads);

}  // namespace smddp
