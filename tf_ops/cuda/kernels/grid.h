// Shared by the kernels: their grid, and how the threads' counts are added up.
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

// Adds the counts of a block's threads, with at most one access to `total`. Either all threads of the block call it
// or none.
__device__ inline void AddFound(uint64_t* total, uint32_t found) {
  __shared__ uint32_t of_block;
  if (__syncthreads_or(found != 0) == 0) return;
  if (threadIdx.x == 0) of_block = 0;
  __syncthreads();
  const uint32_t of_warp = __reduce_add_sync(0xffffffffu, found);
  if (threadIdx.x % 32 == 0 && of_warp != 0) atomicAdd(&of_block, of_warp);
  __syncthreads();
  if (threadIdx.x == 0) atomicAdd(reinterpret_cast<unsigned long long*>(total), of_block);
}

}  // namespace
}  // namespace smddp
