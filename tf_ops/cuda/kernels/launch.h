// Puts jobs on a stream of the thread's current device.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/kernels/job_tables.h"

namespace smddp {

// `processors`: the device's. Errors of the launch itself are returned; errors of the kernel are reported by later
// calls.
cudaError_t Launch(const MoveJob& job, int processors, cudaStream_t stream);

// Loads all kernels onto the device. Otherwise each one is loaded at its first launch, which may wait for everything
// that runs there.
cudaError_t LoadMoveKernels();

}  // namespace smddp
