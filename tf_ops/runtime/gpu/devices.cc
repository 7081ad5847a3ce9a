#include "runtime/gpu/devices.h"

#include <dlfcn.h>
#include <unistd.h>

#include <string>

#include "core/env/env.h"

namespace smddp {
namespace {

constexpr char kLibrary[] = "libsmddp_cuda.so";

// The path of the library, in the folder of the library that holds this code.
std::string BesideThisLibrary() {
  Dl_info found;
  if (dladdr(reinterpret_cast<const void*>(&TheDevices), &found) == 0 || found.dli_fname == nullptr) return kLibrary;
  const std::string here = found.dli_fname;
  const size_t slash = here.rfind('/');
  return (slash == std::string::npos ? "./" : here.substr(0, slash + 1)) + kLibrary;
}

Result<DevicePlugin*> Open(const DeviceLibraries& libraries) {
  const std::string path = libraries.gpu.empty() ? BesideThisLibrary() : libraries.gpu;
  if (libraries.gpu.empty() && access(path.c_str(), F_OK) != 0) {
    return Status(Reason::kBadState,
                  "This smddp_tf was built without CUDA: there was no compiler for it. pip install "
                  "nvidia-cuda-nvrtc-cu12 nvidia-cuda-runtime-cu12, and build it again (docs/gpu.md).");
  }
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return Status(Reason::kBadState, "The GPU part of smddp_tf cannot be loaded: ", dlerror());
  const auto make = reinterpret_cast<MakeDevicePlugin*>(dlsym(library, kMakeDevicePlugin));
  DevicePlugin* const plugin = make != nullptr ? make(kDevicePluginVersion, libraries.nccl.c_str()) : nullptr;
  if (plugin != nullptr) return plugin;
  return Status(Reason::kBadState, path, " belongs to another version of smddp_tf. Build or install smddp_tf again.");
}

}  // namespace

Result<DevicePlugin*> Devices::plugin() {
  std::call_once(loaded_, [this] { plugin_ = Open(ReadDeviceLibraries()); });
  return plugin_;
}

int Devices::Count() {
  std::call_once(counted_, [this] {
    const Result<DevicePlugin*> found = plugin();
    count_ = found.ok() ? (*found)->Count() : found.status();
  });
  return count_.ok() ? *count_ : 0;
}

Result<Device*> Devices::At(const void* memory) {
  SMDDP_ASSIGN_OR_RETURN(DevicePlugin* const found, plugin());
  SMDDP_ASSIGN_OR_RETURN(const int index, found->DeviceOf(memory));
  if (index >= 0) return found->Open(index);
  return Status(Reason::kBadArgument, "A tensor that was submitted as a GPU tensor is in host memory.");
}

Result<PooledEventPtr> Devices::Mark(const void* memory, DeviceStream stream) {
  void* key = stream;
  if (stream == nullptr) {
    SMDDP_ASSIGN_OR_RETURN(key, At(memory));
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  std::unique_ptr<EventPool>& events = events_[key];
  if (events == nullptr) {
    SMDDP_ASSIGN_OR_RETURN(Device * device, At(memory));
    events = std::make_unique<EventPool>(*device);
  }
  return events->Mark(stream);
}

Result<DeviceGroupLibrary*> Devices::groups() {
  SMDDP_ASSIGN_OR_RETURN(DevicePlugin* const found, plugin());
  return found->Groups();
}

DeviceSupport Devices::Find() {
  DeviceSupport support;
  const Result<DevicePlugin*> found = plugin();
  if (found.ok()) support.platform = (*found)->platform();
  support.count = Count();
  support.why_none = count_.status().message();
  const Result<DeviceGroupLibrary*> library = groups();
  if (library.ok()) support.nccl_version = (*library)->version();
  support.why_no_nccl = library.status().message();
  return support;
}

// Never destroyed: frameworks may release tensors when the process ends.
Devices& TheDevices() {
  static Devices* const devices = new Devices();
  return *devices;
}

}  // namespace smddp
