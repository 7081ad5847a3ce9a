// NCCL as a DeviceGroupLibrary: found and loaded at run time.
#pragma once

#include <functional>
#include <string>

#include "device/group.h"

namespace smddp {

// Runs `call` on this thread with the device as its current one; NCCL requires that when joining.
using OnDevice = std::function<void(Device& device, const std::function<void()>& call)>;

// Loads NCCL from `path`. With "", it looks for the PyPI wheel (nvidia/nccl in the package folder of this library or
// of another loaded one, such as TensorFlow's), then for libnccl.so.2 with the dynamic linker. The library lives as
// long as the process. A second call for the same library returns it with the `on_device` of the first.
Result<DeviceGroupLibrary*> LoadNccl(const std::string& path, OnDevice on_device);

}  // namespace smddp
