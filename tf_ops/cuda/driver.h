// NVIDIA's driver (libcuda.so.1), through which everything is done: the library contains no CUDA runtime. It is opened
// on first use, so nothing needs a driver to load.
#pragma once

#include <cuda.h>

#include "core/status.h"

namespace smddp {

// By their names in the library; where there is a _v2, it is the one that CUDA's headers call.
// clang-format off
#define SMDDP_DRIVER_FUNCTIONS(F) \
  F(cuInit) F(cuDriverGetVersion) F(cuGetErrorName) F(cuGetErrorString) \
  F(cuDeviceGetCount) F(cuDeviceGet) F(cuDeviceGetName) F(cuDeviceGetUuid_v2) F(cuDeviceGetPCIBusId) \
  F(cuDeviceGetAttribute) F(cuDevicePrimaryCtxRetain) \
  F(cuCtxGetCurrent) F(cuCtxSetCurrent) F(cuCtxGetStreamPriorityRange) F(cuPointerGetAttribute) \
  F(cuMemAlloc_v2) F(cuMemFree_v2) F(cuMemHostAlloc) F(cuMemFreeHost) F(cuMemcpyAsync) \
  F(cuStreamCreateWithPriority) F(cuStreamDestroy_v2) F(cuStreamWaitEvent) \
  F(cuEventCreate) F(cuEventDestroy_v2) F(cuEventRecord) F(cuEventQuery) \
  F(cuModuleLoadData) F(cuModuleGetFunction) F(cuFuncGetAttribute) F(cuLaunchKernel)
// clang-format on

struct Driver {
#define SMDDP_MEMBER(name) decltype(&::name) name = nullptr;
  SMDDP_DRIVER_FUNCTIONS(SMDDP_MEMBER)
#undef SMDDP_MEMBER
};

// The driver, initialized: from then on CUDA_VISIBLE_DEVICES is not read again. Creates no context.
//
// Threads: any. kBadState: this machine has none, it is older than the kernels, or it shows this process no GPU.
Result<const Driver*> TheDriver();

// OK, or the name of the call, the driver's message, and the usual cause.
Status CudaStatus(const Driver& driver, CUresult result, const char* call);

}  // namespace smddp

// Calls a function of the driver.
#define SMDDP_CUDA_STATUS(driver, function, ...) ::smddp::CudaStatus(driver, (driver).function(__VA_ARGS__), #function)
// The same; returns from the enclosing function when it fails.
#define SMDDP_CUDA(...) SMDDP_RETURN_IF_ERROR(SMDDP_CUDA_STATUS(__VA_ARGS__))
