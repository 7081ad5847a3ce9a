// NCCL's results in words: the call, what NCCL said, and what usually causes it.
#pragma once

#include "core/status.h"
#include "cuda/nccl/nccl_abi.h"

namespace smddp {

// OK also while the library still works on the call. `comm` may be null.
Status NcclStatus(const nccl::Api& api, const char* call, nccl::Result result, nccl::Comm comm);

}  // namespace smddp
