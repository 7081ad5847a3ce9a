// The NCCL adapter (tf_ops/cuda) on the fake GPU.
#pragma once

#include <string>

#include "core/status.h"
#include "device/group.h"

namespace smddp::fake {

// A fake NCCL gets the fake GPU's functions.
Result<DeviceGroupLibrary*> LoadGroups(const std::string& path);

}  // namespace smddp::fake
