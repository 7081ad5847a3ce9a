// The part of NCCL's binary interface that is used, declared here so that the build needs no NCCL. It has not changed
// since 2.14, the first version with nonblocking communicators; newer versions add to it.
#pragma once

#include <climits>
#include <cstddef>

namespace smddp::nccl {

constexpr int kOldestVersion = 21400;

using Comm = struct CommOfNccl*;
using Stream = void*;  // cudaStream_t

struct UniqueId {
  char bytes[128];
};

// ncclResult_t
enum class Result : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
  kTimeout = 8,
};

// ncclDataType_t
enum class Type : int { kUInt8 = 1, kFloat16 = 6, kFloat32 = 7, kFloat64 = 8, kBFloat16 = 9 };

// ncclRedOp_t
enum class Op : int { kSum = 0 };

// ncclConfig_t as of 2.14. `version` makes newer versions use defaults for later fields, the first of which lies
// where this struct is padded.
struct Config {
  size_t size = sizeof(Config);
  unsigned int magic = 0xcafebeef;
  unsigned int version = kOldestVersion;
  int blocking = 0;
  int later = INT_MIN;  // "not set"
};
static_assert(sizeof(Config) == 24 && offsetof(Config, blocking) == 16);

struct Api {
  Result (*GetVersion)(int* version);
  Result (*GetUniqueId)(UniqueId* id);
  Result (*CommInitRankConfig)(Comm* comm, int size, UniqueId id, int member, Config* config);
  Result (*CommGetAsyncError)(Comm comm, Result* error);
  Result (*CommFinalize)(Comm comm);
  Result (*CommDestroy)(Comm comm);
  Result (*CommAbort)(Comm comm);
  Result (*GroupStart)();
  Result (*GroupEnd)();
  Result (*AllReduce)(const void* from, void* into, size_t each, Type type, Op op, Comm comm, Stream stream);
  Result (*ReduceScatter)(const void* from, void* into, size_t each, Type type, Op op, Comm comm, Stream stream);
  Result (*AllGather)(const void* from, void* into, size_t each, Type type, Comm comm, Stream stream);
  const char* (*GetErrorString)(Result result);
  const char* (*GetLastError)(Comm comm);
};
// All of them, by their names in the library without "nccl".
// clang-format off
#define SMDDP_NCCL_FUNCTIONS(F) \
  F(GetVersion) F(GetUniqueId) F(CommInitRankConfig) F(CommGetAsyncError) F(CommFinalize) F(CommDestroy) F(CommAbort) \
  F(GroupStart) F(GroupEnd) F(AllReduce) F(ReduceScatter) F(AllGather) F(GetErrorString) F(GetLastError)
// clang-format on

}  // namespace smddp::nccl
