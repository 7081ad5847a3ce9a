// The GPUs of the fake CUDA, their contexts, and the calling thread's current one and last error.
//
// Stricter than CUDA: streams, events, memory and kernels are used only while the context that they belong to is
// current, and what no use here needs is refused.
//
//   FAKE_CUDA_GPU      h100 (default), t4, p100: what the devices are
//   FAKE_CUDA_DRIVER   the CUDA that the driver is of, such as 12040; unset: that of the headers. 0: there is no
//   driver,
//                      libcuda.so.1 cannot be loaded
// and those of the fake GPU (tests/fake_gpu/settings.h).
//
// Threads: any.
#pragma once

#include <cuda.h>

#include <string>

#include "core/status.h"

namespace smddp::fake {

struct Gpu {
  const char* name;
  int major, minor;
};
Gpu TheGpu();
constexpr int kProcessors = 4;
int DriverVersion();

// Has this process called cuInit? Before that every call is refused.
bool IsInitialised();
void Initialise();

// The primary context of a device, which Retain makes; null: it was not made.
CUcontext Retain(int device);
bool IsContext(CUcontext context);

// The calling thread's; null: none.
CUcontext CurrentContext();
void SetCurrentContext(CUcontext context);

// An error in CUDA's numbers, whose words cuGetErrorString then says on this thread.
CUresult ResultOf(const Status& status);
const char* WordsOf(CUresult result);

}  // namespace smddp::fake
