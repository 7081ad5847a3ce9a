#include "cuda/driver.h"

#include <dlfcn.h>

#include <string>

namespace smddp {
namespace {

template <class Function>
bool Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

Result<const Driver*> Load() {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return Status(Reason::kBadState, "This machine has no NVIDIA driver: libcuda.so.1 cannot be loaded (" +
                                         std::string(dlerror()) +
                                         "). In a container: start it with its GPUs (docker run --gpus all).");
  }
  static Driver driver;
  if (Find(library, "cuCtxGetCurrent", &driver.context_get) && Find(library, "cuCtxSetCurrent", &driver.context_set) &&
      Find(library, "cuPointerGetAttribute", &driver.pointer_attribute)) {
    return static_cast<const Driver*>(&driver);
  }
  return Status(Reason::kBadState,
                "libcuda.so.1 is not an NVIDIA driver: functions that every driver has are missing.");
}

}  // namespace

Result<const Driver*> TheDriver() {
  static const Result<const Driver*> driver = Load();
  return driver;
}

}  // namespace smddp
