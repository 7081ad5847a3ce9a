// Pack, unpack, cast, scale and copy: one kernel for each pair of element types.
#include "cuda/kernels/dispatch.h"
#include "cuda/kernels/grid.h"
#include "cuda/kernels/launch.h"
#include "cuda/kernels/move.h"

namespace smddp {
namespace {

// The maximum that the registers allow: 4 blocks of 256 threads with 64 each.
constexpr int kBlocksPerProcessor = 4;

template <class To, class From>
__global__ void __launch_bounds__(kBlockThreads, kBlocksPerProcessor) MoveKernel(const __grid_constant__ MoveJob job) {
  MoveThread<To, From>(job, blockIdx.x, gridDim.x, threadIdx.x, kBlockThreads);
}

}  // namespace

cudaError_t Launch(const MoveJob& job, int processors, cudaStream_t stream) {
  return WithPair(job.to, job.from, [&](auto to, auto from) {
    using To = typename decltype(to)::Type;
    using From = typename decltype(from)::Type;
    const unsigned blocks = GridFor(TilesOf<To, From>(job), processors, kBlocksPerProcessor);
    return LaunchKernel(&MoveKernel<To, From>, job, blocks, kBlockThreads, stream);
  });
}

cudaError_t LoadMoveKernels() {
  cudaError_t worst = cudaSuccess;
  ForEachPair([&](auto to, auto from) {
    const cudaError_t error = LoadKernel(&MoveKernel<typename decltype(to)::Type, typename decltype(from)::Type>);
    if (worst == cudaSuccess) worst = error;
  });
  return worst;
}

}  // namespace smddp
