#include "groups.h"

#include <dlfcn.h>

#include "cuda/nccl/nccl_library.h"
#include "device/plugin.h"
#include "gpu_table.h"
#include "memory.h"
#include "on_host.h"
#include "settings.h"
#include "stream.h"

extern "C" smddp::DevicePlugin* smddp_make_device_plugin(int version, const char* nccl);

namespace smddp::fake {
namespace {

const char* Uuid(int device) {
  const Result<Device*> opened = smddp_make_device_plugin(kDevicePluginVersion, "")->Open(device);
  if (!opened.ok()) Fatal("NCCL joins without a current device.");
  return opened.value()->info().uuid.c_str();
}

void Enqueue(int device, void* stream, void (*work)(void*), void* argument) {
  StreamOf(device, stream, "NCCL")->Put([=] { work(argument); });
}

void* Hold(int device, const void* memory, size_t bytes, const char* call) {
  return new Span(TouchByKernel(device, memory, bytes, call));
}

constexpr GpuTable kTable = {
    CurrentDevice,
    Uuid,
    Enqueue,
    Hold,
    [](void* held) { return static_cast<Span*>(held)->data(); },
    [](void* held) { delete static_cast<Span*>(held); },
    [](void* into, const void* const* sources, int count, int64_t elements, int dtype) {
      SumOnHost(into, sources, count, elements, static_cast<DType>(dtype));
    },
    [](const char* what, int64_t amount) { Add(what, amount); },
};

}  // namespace

void HandOver(void* library) {
  const auto use = reinterpret_cast<void (*)(const GpuTable*)>(dlsym(library, "fake_nccl_use_gpu"));
  if (use != nullptr) use(&kTable);
}

Result<DeviceGroupLibrary*> LoadGroups(const std::string& path) {
  Result<DeviceGroupLibrary*> loaded = LoadNccl(path);
  if (!loaded.ok() || path.empty()) return loaded;
  if (void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL); library != nullptr) HandOver(library);
  return loaded;
}

}  // namespace smddp::fake
