// NCCL as a DeviceGroupLibrary: found and loaded at run time.
#pragma once

#include <functional>
#include <string>

#include "device/group.h"

namespace smddp {

// Runs `call` on this thread while the device is its current one, as NCCL wants it of who joins.
using OnDevice = std::function<void(Device& device, const std::function<void()>& call)>;

// Loads NCCL from `path`; with "", from the PyPI wheel (nvidia/nccl in the folder of packages that this library or
// another loaded one lies in: TensorFlow's own), else as the dynamic linker finds libnccl.so.2. The library lives as
// long as the process; what was loaded is found again, with the `on_device` it had then.
Result<DeviceGroupLibrary*> LoadNccl(const std::string& path, OnDevice on_device);

}  // namespace smddp
