// Puts jobs on a stream. All of it on the thread's current device.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/kernels/job_tables.h"

namespace smddp {

// `processors`: the device's. What a launch itself can say is returned; the rest comes out of later calls.
cudaError_t Launch(const MoveJob& job, int processors, cudaStream_t stream);
cudaError_t Launch(const SumJob& job, int processors, cudaStream_t stream);

// Brings all kernels to the device. Otherwise each is when it is first launched, which may wait for all that runs
// there.
cudaError_t LoadMoveKernels();
cudaError_t LoadSumKernels();

}  // namespace smddp
