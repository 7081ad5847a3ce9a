// The GPUs of a platform, in a separate library that is loaded when present (libsmddp_cuda.so): one wheel works with
// and without it.
//
// Threads: any. Ownership: the plug-in, and all it returns, lives as long as the process.
#pragma once

#include <string>

#include "core/status.h"
#include "device/device.h"
#include "device/group.h"

namespace smddp {

class DevicePlugin {
 public:
  virtual ~DevicePlugin() = default;
  // "CUDA 13.0"
  virtual std::string platform() const = 0;
  // How many devices this process sees. Creates no context on any of them. An error says why there are none: no
  // driver, a driver that is too old, no visible device.
  virtual Result<int> Count() = 0;
  // Creates a context there on the first call, unless the framework has.
  virtual Result<Device*> Open(int index) = 0;
  // Where the memory lies: a device's index, or -1 for host memory.
  virtual Result<int> DeviceOf(const void* memory) = 0;
  // NCCL, loaded on the first call; an error says why it cannot be used.
  virtual Result<DeviceGroupLibrary*> Groups() = 0;
};

// Increase it whenever an interface in this folder changes. A plug-in of another version returns null.
constexpr int kDevicePluginVersion = 5;
// The function that the library exports. `nccl`: the path of NCCL; "" looks beside TensorFlow's and then in the
// dynamic linker's path.
using MakeDevicePlugin = DevicePlugin*(int version, const char* nccl);
constexpr char kMakeDevicePlugin[] = "smddp_make_device_plugin";

}  // namespace smddp
