// The few functions of the driver (libcuda.so.1) for which the CUDA runtime has no equivalent without side effects:
// the runtime's own create a context on the current device. The library is opened on first use, so nothing needs a
// driver to load.
#pragma once

#include <cuda.h>

#include "core/status.h"

namespace smddp {

struct Driver {
  CUresult (*context_get)(CUcontext*);
  CUresult (*context_set)(CUcontext);
  CUresult (*pointer_attribute)(void*, CUpointer_attribute, CUdeviceptr);
};

// Threads: any. kBadState: this machine has no driver.
Result<const Driver*> TheDriver();

}  // namespace smddp
