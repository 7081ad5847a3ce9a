#include "cuda/nccl/nccl_errors.h"

#include <string>

namespace smddp {
namespace {

const char* UsualCause(nccl::Result result, const std::string& words) {
  if (words.find("Duplicate GPU") != std::string::npos) {
    return "Two ranks of a node use the same GPU: give each one of its own by local_rank (docs/gpu.md), or set "
           "SMDDP_GPU_STAGE=host for ranks that share a GPU.";
  }
  switch (result) {
    case nccl::Result::kUnhandledCudaError:
      return "Usual cause: the GPU or its driver: no memory left on the GPU, a driver older than NCCL's CUDA, or a "
             "fault that dmesg shows as Xid.";
    case nccl::Result::kSystemError:
      return "Usual cause: the network interface that NCCL chose (NCCL_SOCKET_IFNAME names another one), or too little "
             "/dev/shm in a container (docker run --shm-size=1g).";
    case nccl::Result::kRemoteError:
    case nccl::Result::kTimeout:
      return "Usual cause: the process of another rank has ended, or cannot be reached any more.";
    case nccl::Result::kInvalidUsage:
    case nccl::Result::kInvalidArgument:
      return "Usual cause: two ranks of a node on the same GPU (set SMDDP_GPU_STAGE=host, or give each one of its "
             "own by local_rank), or ranks with different versions of NCCL.";
    default:
      return "Usual cause: an error before this one, or ranks with different versions of NCCL.";
  }
}

}  // namespace

Status NcclStatus(const nccl::Api& api, const char* call, nccl::Result result, nccl::Comm comm) {
  if (result == nccl::Result::kSuccess || result == nccl::Result::kInProgress) return Status::Ok();
  const char* const name = api.GetErrorString(result);
  const char* const last = api.GetLastError(comm);
  std::string words = name != nullptr ? name : "result " + std::to_string(static_cast<int>(result));
  if (last != nullptr && *last != '\0') words += std::string(": ") + last;
  while (!words.empty() && (words.back() == '\n' || words.back() == '.')) words.pop_back();
  const bool lost = result == nccl::Result::kRemoteError || result == nccl::Result::kTimeout;
  const char* const more = words.find("NCCL_DEBUG") == std::string::npos ? " NCCL_DEBUG=INFO shows more." : "";
  return Status(lost ? Reason::kPeerLost : Reason::kInternal,
                "NCCL has failed in " + std::string(call) + ": " + words + ". " + UsualCause(result, words) + more);
}

}  // namespace smddp
