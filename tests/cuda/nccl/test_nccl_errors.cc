#include "cuda/nccl/nccl_errors.h"
#include "native/testing.h"

namespace smddp {
namespace {

using nccl::Result;

const char* last_words = "";
const char* general_words = "";

Status Of(Result result, const char* general, const char* last = "") {
  general_words = general;
  last_words = last;
  nccl::Api api = {};
  api.GetErrorString = [](Result) { return general_words; };
  api.GetLastError = [](nccl::Comm) { return last_words; };
  return NcclStatus(api, "ncclAllReduce", result, nullptr);
}

TEST_CASE("errors of NCCL: what has succeeded or is under way is none") {
  CHECK(Of(Result::kSuccess, "no error").ok());
  CHECK(Of(Result::kInProgress, "in progress").ok());
}

TEST_CASE("errors of NCCL: the call, NCCL's words and the usual cause, and whether a peer is lost") {
  const Status system = Of(Result::kSystemError, "unhandled system error", "Connection refused.\n");
  CHECK(system.reason() == Reason::kInternal);
  CHECK(Begins(system.message(),
               "NCCL has failed in ncclAllReduce: unhandled system error: Connection refused. Usual cause: "));
  CHECK(Has(system.message(), "NCCL_SOCKET_IFNAME"));
  CHECK(Has(system.message(), " NCCL_DEBUG=INFO shows more."));
  for (const Result lost : {Result::kRemoteError, Result::kTimeout}) {
    CHECK(Of(lost, "remote").reason() == Reason::kPeerLost);
    CHECK(Has(Of(lost, "remote").message(), "the process of another rank has ended"));
  }
  CHECK(Has(Of(Result::kUnhandledCudaError, "cuda").message(), "driver older than NCCL's CUDA"));
  for (const Result usage : {Result::kInvalidUsage, Result::kInvalidArgument}) {
    CHECK(Of(usage, "usage").reason() == Reason::kInternal);
    CHECK(Has(Of(usage, "usage").message(), "two ranks of a node on the same GPU"));
  }
  CHECK(Has(Of(Result::kInternalError, "internal").message(), "an error before this one"));
}

TEST_CASE("errors of NCCL: two ranks on one GPU are named as such, whatever the result is") {
  for (const Result result : {Result::kInvalidUsage, Result::kInternalError}) {
    CHECK(Has(Of(result, "invalid usage", "Duplicate GPU detected : rank 1 and rank 0").message(),
              "Two ranks of a node use the same GPU"));
  }
}

TEST_CASE("errors of NCCL: an unknown result is told by its number, and advice that NCCL gives is not repeated") {
  CHECK(Has(Of(static_cast<Result>(99), nullptr, nullptr).message(), "ncclAllReduce: result 99. "));
  const std::string advised = Of(Result::kInternalError, "internal error", "run with NCCL_DEBUG=WARN").message();
  CHECK_FALSE(Has(advised, "NCCL_DEBUG=INFO"));
}

}  // namespace
}  // namespace smddp
