// NCCL as a DeviceGroupLibrary: found and loaded at run time.
#pragma once

#include <string>

#include "device/group.h"

namespace smddp {

// Loads NCCL from `path`. With "", it looks for the PyPI wheel (nvidia/nccl in the package folder of this library or
// of another loaded one, such as TensorFlow's), then for libnccl.so.2 with the dynamic linker. The library lives as
// long as the process. A second call for the same library returns the same.
Result<DeviceGroupLibrary*> LoadNccl(const std::string& path);

}  // namespace smddp
