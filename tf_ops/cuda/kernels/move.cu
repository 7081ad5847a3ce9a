// Pack, unpack, cast, scale and copy: one kernel for each pair of element types, named by the numbers of Element
// (cuda_device.cc). Compiled by nvcc or NVRTC: device code only, without CUDA's headers.
#include "cuda/kernels/move.h"

namespace smddp {

#define SMDDP_KERNEL(to, To, from, From)                                           \
  extern "C" __global__ void __launch_bounds__(kBlockThreads, kBlocksPerProcessor) \
      smddp_move_##to##_##from(const __grid_constant__ MoveJob job) {              \
    MoveThread<To, From>(job, blockIdx.x, gridDim.x, threadIdx.x, kBlockThreads);  \
  }
#define SMDDP_KERNELS(to, To)       \
  SMDDP_KERNEL(to, To, 0, Half)     \
  SMDDP_KERNEL(to, To, 1, BFloat16) \
  SMDDP_KERNEL(to, To, 2, float)    \
  SMDDP_KERNEL(to, To, 3, double)

SMDDP_KERNELS(0, Half)
SMDDP_KERNELS(1, BFloat16)
SMDDP_KERNELS(2, float)
SMDDP_KERNELS(3, double)
SMDDP_KERNEL(4, uint8_t, 4, uint8_t)
SMDDP_KERNEL(5, uint16_t, 5, uint16_t)
SMDDP_KERNEL(6, uint32_t, 6, uint32_t)
SMDDP_KERNEL(7, uint64_t, 7, uint64_t)

}  // namespace smddp
