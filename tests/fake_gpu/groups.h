// The NCCL adapter (tf_ops/cuda) on the fake GPU.
#pragma once

#include <functional>
#include <string>

#include "core/status.h"
#include "device/group.h"

namespace smddp::fake {

// A fake NCCL gets the fake GPU's functions.
Result<DeviceGroupLibrary*> LoadGroups(const std::string& path);
// If this library, which dlopen has returned, is a fake NCCL.
void HandOver(void* library);

// --- Of the interface: device.cc, tests/fake_cuda ---

// The calling thread's device; -1: none.
int CurrentDevice();

}  // namespace smddp::fake
