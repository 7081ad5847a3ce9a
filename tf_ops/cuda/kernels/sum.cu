// Sums of several arrays: one kernel for each floating type.
#include "cuda/kernels/dispatch.h"
#include "cuda/kernels/grid.h"
#include "cuda/kernels/launch.h"
#include "cuda/kernels/sum.h"

namespace smddp {
namespace {

// The maximum that the registers allow: 3 blocks of 256 threads with up to 80 each.
constexpr int kBlocksPerProcessor = 3;

template <class T>
__global__ void __launch_bounds__(kBlockThreads, kBlocksPerProcessor) SumKernel(const __grid_constant__ SumJob job) {
  const uint32_t found = SumThread<T>(job, blockIdx.x, gridDim.x, threadIdx.x, kBlockThreads);
  if (job.non_finite != nullptr) AddFound(job.non_finite, found);
}

}  // namespace

cudaError_t Launch(const SumJob& job, int processors, cudaStream_t stream) {
  return WithFloating(job.element, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    const unsigned blocks = GridFor(TilesOf<T>(job), processors, kBlocksPerProcessor);
    return LaunchKernel(&SumKernel<T>, job, blocks, kBlockThreads, stream);
  });
}

cudaError_t LoadSumKernels() {
  cudaError_t worst = cudaSuccess;
  for (Element element : kFloatingElements) {
    const cudaError_t error =
        WithFloating(element, [](auto tag) { return LoadKernel(&SumKernel<typename decltype(tag)::Type>); });
    if (worst == cudaSuccess) worst = error;
  }
  return worst;
}

}  // namespace smddp
