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
                  "This smddp_tf was built without CUDA: there was no nvcc. Install the CUDA toolkit (nvcc 12 or 13) "
                  "and build it again (docs/gpu.md).");
  }
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return Status(Reason::kBadState, "The GPU part of smddp_tf cannot be loaded: " + std::string(dlerror()));
  }
  const auto make = reinterpret_cast<MakeDevicePlugin*>(dlsym(library, kMakeDevicePlugin));
  DevicePlugin* const plugin = make != nullptr ? make(kDevicePluginVersion, libraries.nccl.c_str()) : nullptr;
  if (plugin != nullptr) return plugin;
  return Status(Reason::kBadState, path + " belongs to another version of smddp_tf. Build or install smddp_tf again.");
}

}  // namespace

void Devices::Load() {
  Result<DevicePlugin*> opened = Open(ReadDeviceLibraries());
  if (opened.ok()) {
    plugin_ = *opened;
  } else {
    why_none_ = opened.status();
  }
}

DevicePlugin* Devices::plugin(Status* why) {
  std::call_once(loaded_, [this] { Load(); });
  if (why != nullptr) *why = why_none_;
  return plugin_;
}

int Devices::Count() {
  if (plugin(nullptr) == nullptr) return 0;
  std::call_once(counted_, [this] {
    const Result<int> count = plugin_->Count();
    count_ = count.ok() ? *count : 0;
    why_no_devices_ = count.status();
  });
  return count_;
}

Result<Device*> Devices::At(const void* memory) {
  Status why;
  if (plugin(&why) == nullptr) return why;
  SMDDP_ASSIGN_OR_RETURN(const int index, plugin_->DeviceOf(memory));
  if (index < 0) {
    return Status(Reason::kBadArgument, "A tensor that was submitted as a GPU tensor is in host memory.");
  }
  return plugin_->Open(index);
}

DeviceGroupLibrary* Devices::groups(Status* why) {
  Status none;
  if (plugin(&none) != nullptr) {
    const Result<DeviceGroupLibrary*> found = plugin_->Groups();
    if (found.ok()) return *found;
    none = found.status();
  }
  if (why != nullptr) *why = none;
  return nullptr;
}

DeviceSupport Devices::Find() {
  DeviceSupport support;
  Status why;
  if (plugin(&why) != nullptr) {
    support.platform = plugin_->platform();
    support.count = Count();
    why = why_no_devices_;
  }
  support.why_none = why.message();
  if (DeviceGroupLibrary* const library = groups(&why)) {
    support.nccl_version = library->version();
  } else {
    support.why_no_nccl = why.message();
  }
  return support;
}

// Never destroyed: frameworks may release tensors when the process ends.
Devices& TheDevices() {
  static Devices* const devices = new Devices();
  return *devices;
}

}  // namespace smddp
