// From CUDA's error codes to Status.
#pragma once

#include <cuda_runtime_api.h>

#include "core/status.h"

namespace smddp {

// OK, or the name of the call, CUDA's message, and the usual cause. Clears the thread's last error, so that no later
// call reports it again.
Status CudaStatus(cudaError_t error, const char* call);

}  // namespace smddp

// Returns from the enclosing function when the call fails.
#define SMDDP_CUDA(function, ...) SMDDP_RETURN_IF_ERROR(::smddp::CudaStatus(function(__VA_ARGS__), #function))
