// How kernels are loaded and launched.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace smddp {
namespace {

// A small number of blocks that loop until the work is done.
inline unsigned GridFor(int64_t tiles, int processors, int blocks_per_processor) {
  const int64_t most = static_cast<int64_t>(processors) * blocks_per_processor;
  return static_cast<unsigned>(tiles < most ? tiles : most);
}

template <class Job>
cudaError_t LaunchKernel(void (*kernel)(Job), const Job& job, unsigned blocks, unsigned threads, cudaStream_t stream) {
  void* parameters[] = {const_cast<Job*>(&job)};
  return cudaLaunchKernel(reinterpret_cast<const void*>(kernel), dim3(blocks), dim3(threads), parameters, 0, stream);
}

template <class Job>
cudaError_t LoadKernel(void (*kernel)(Job)) {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(kernel));
}

}  // namespace
}  // namespace smddp
