// NCCL's results as messages: the call, NCCL's own text, and the usual cause.
#pragma once

#include "core/status.h"
#include "cuda/nccl/nccl_abi.h"

namespace smddp {

// Also OK while NCCL has not completed the call. `comm` may be null.
Status NcclStatus(const nccl::Api& api, const char* call, nccl::Result result, nccl::Comm comm);

}  // namespace smddp
