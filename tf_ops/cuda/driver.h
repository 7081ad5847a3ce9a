// The few functions of the driver itself (libcuda.so.1) that the CUDA runtime has no harmless form of: its own make a
// context on whatever device is current. The library is opened when first asked for, so nothing needs a driver to load.
#pragma once

#include <cuda.h>

#include "core/status.h"

namespace smddp {

struct Driver {
  CUresult (*context_get)(CUcontext*);
  CUresult (*context_set)(CUcontext);
  CUresult (*pointer_attribute)(void*, CUpointer_attribute, CUdeviceptr);
};

// Threads: any. kFailedPrecondition: this machine has no driver.
Result<const Driver*> TheDriver();

}  // namespace smddp
