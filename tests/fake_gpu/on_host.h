// The kernels run by the processor, block after block and thread after thread, with the very functions that the GPU
// runs. For tests, and for the tests' fake GPU.
#pragma once

#include <cstdint>

#include "cuda/kernels/jobs.h"

namespace smddp {

// As a launch of `blocks` with `threads` each; any numbers from 1 give the same result.
void RunOnHost(const MoveJob& job, uint32_t blocks, uint32_t threads);
// into[i] = sources[0][i] + sources[1][i] + ... in this order, for a floating dtype; half types are summed in float32
// and rounded once.
void SumOnHost(void* into, const void* const* sources, int count, int64_t elements, DType dtype);
// How many 16-byte accesses these runs have made on the calling thread so far. One that is not aligned ends the
// program.
uint64_t QuadsOnHost();

}  // namespace smddp
