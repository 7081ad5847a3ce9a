// Stand-in until the adapter is there.
#pragma once

#include <string>

#include "core/status.h"
#include "device/group.h"

namespace smddp {

inline Result<DeviceGroupLibrary*> LoadNccl(const std::string&) {
  return Status(Code::kUnimplemented, "This build of smddp_tf does not use NCCL.");
}

}  // namespace smddp
