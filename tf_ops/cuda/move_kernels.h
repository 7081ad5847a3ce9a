// The kernels of kernels/move.cu, loaded on one device.
#pragma once

#include "cuda/driver.h"
#include "cuda/kernel_images.h"
#include "cuda/kernels/job_tables.h"

namespace smddp {

// Threads: any, with the device's context current for all calls.
class MoveKernels {
 public:
  // Loads all: otherwise each would be loaded at its first launch, which may wait for everything that runs there.
  static Result<MoveKernels> Load(const Driver& driver, const KernelImage& image);

  // `processors`: the device's. Errors of the launch itself are returned; errors of the kernel are reported by later
  // calls.
  Status Launch(const Driver& driver, const MoveJob& job, int processors, CUstream stream) const;

 private:
  static constexpr int kElements = 8;
  CUfunction functions_[kElements][kElements] = {};  // by Element: to, from
};

}  // namespace smddp
