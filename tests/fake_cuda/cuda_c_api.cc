// What tests use of the fake CUDA beyond the fake GPU's functions.
#include <functional>

#include "c_api.h"
#include "contexts.h"
#include "cuda/cuda_device.h"
#include "groups.h"

namespace fake = smddp::fake;

// The device of the calling thread's context; -1: none.
SMDDP_EXPORT int fake_cuda_current() { return fake::CurrentDevice(); }
SMDDP_EXPORT void fake_cuda_set_current(int device) {
  fake::SetCurrentContext(device < 0 ? nullptr : fake::Retain(device));
}
