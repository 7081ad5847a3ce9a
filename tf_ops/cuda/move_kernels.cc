#include "cuda/move_kernels.h"

#include <algorithm>
#include <string>

namespace smddp {

Result<MoveKernels> MoveKernels::Load(const Driver& driver, const KernelImage& image) {
  MoveKernels kernels;
  CUmodule module = nullptr;  // never unloaded
  SMDDP_CUDA(driver, cuModuleLoadData, &module, image.data);
  for (int to = 0; to < kElements; ++to) {
    for (int from = 0; from < kElements; ++from) {
      if (to != from && std::max(to, from) > static_cast<int>(Element::kDouble)) continue;  // copied only
      const std::string name = "smddp_move_" + std::to_string(to) + "_" + std::to_string(from);
      CUfunction& function = kernels.functions_[to][from];
      SMDDP_CUDA(driver, cuModuleGetFunction, &function, module, name.c_str());
      int registers = 0;  // asking for them loads the kernel
      SMDDP_CUDA(driver, cuFuncGetAttribute, &registers, CU_FUNC_ATTRIBUTE_NUM_REGS, function);
    }
  }
  return kernels;
}

// A small number of blocks that loop until the work is done.
Status MoveKernels::Launch(const Driver& driver, const MoveJob& job, int processors, CUstream stream) const {
  const uint32_t most = static_cast<uint32_t>(processors) * kBlocksPerProcessor;
  const uint32_t blocks = std::min(job.starts[job.count] / kSmallestTile + 2, most);  // the first tile may be shorter
  void* parameters[] = {const_cast<MoveJob*>(&job)};
  return SMDDP_CUDA_STATUS(driver, cuLaunchKernel, functions_[static_cast<int>(job.to)][static_cast<int>(job.from)],
                           blocks, 1, 1, kBlockThreads, 1, 1, 0, stream, parameters, nullptr);
}

}  // namespace smddp
