// What CUDA says of itself, in the words of the engine.
#pragma once

#include <cuda_runtime_api.h>

#include "core/status.h"

namespace smddp {

// OK, or the name of the call, CUDA's words, and what usually causes them. Takes the error back from the thread, so
// that no later call reports it once more.
Status CudaStatus(cudaError_t error, const char* call);

}  // namespace smddp

// Returns from a function unless the call went well.
#define SMDDP_CUDA(function, ...) SMDDP_RETURN_IF_ERROR(::smddp::CudaStatus(function(__VA_ARGS__), #function))
