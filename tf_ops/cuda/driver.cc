#include "cuda/driver.h"

#include <dlfcn.h>

#include <string>

namespace smddp {
namespace {

// NVIDIA's number of the first driver with CUDA 11.0, 11.1, ...; then of 12 and 13. 0: not known.
constexpr int kDrivers[][10] = {
    {450, 455, 460, 465, 470, 495, 510, 515, 520}, {525, 530, 535, 545, 550, 555, 560, 565, 570, 575}, {580}};

// `cuda`: as cuDriverGetVersion, 12040 for 12.4. "550 (CUDA 12.4)"
std::string DriverText(int cuda) {
  const int major = cuda / 1000, minor = cuda % 1000 / 10;
  const bool listed = major >= 11 && major <= 13 && minor < 10;
  const int number = listed ? kDrivers[major - 11][minor] : 0;
  const std::string of_cuda = "CUDA " + std::to_string(major) + "." + std::to_string(minor);
  return number == 0 ? "one of " + of_cuda : std::to_string(number) + " (" + of_cuda + ")";
}

// The usual cause, after a space; "" where there is no typical one.
const char* HintFor(CUresult result) {
  switch (result) {
    case CUDA_ERROR_NO_DEVICE:
      return " The driver shows this process no GPU: CUDA_VISIBLE_DEVICES hides them, or the container was started "
             "without them.";
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
      return " The driver's library and its kernel module differ: restart the machine after an update of the driver.";
    case CUDA_ERROR_SYSTEM_NOT_READY:
      return " A service that the GPUs need is not running, such as nvidia-fabricmanager.";
    case CUDA_ERROR_OUT_OF_MEMORY:
      return " The GPU's memory is taken: TensorFlow takes nearly all of it at its start unless told otherwise, by "
             "tf.config.experimental.set_memory_growth or TF_FORCE_GPU_ALLOW_GROWTH=true; see who else uses the GPU "
             "with nvidia-smi.";
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
      return " Another process has the GPU for itself (compute mode exclusive), or it is broken; see nvidia-smi.";
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
      return " For a GPU that is newer than smddp_tf the driver must be as new as the CUDA it was built with.";
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_ASSERT:
      return " Some kernel of this process, not necessarily one of smddp_tf, has failed, and the GPU can no longer be "
             "used by it; CUDA_LAUNCH_BLOCKING=1 or compute-sanitizer shows which.";
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
      return " A hardware fault; nvidia-smi -q and dmesg show details.";
    default:
      return "";
  }
}

// The symbols of `library`; kBadState without one of them.
Status Find(void* library, Driver* driver) {
  bool complete = true;
#define SMDDP_FIND(name)                                                     \
  driver->name = reinterpret_cast<decltype(&::name)>(dlsym(library, #name)); \
  complete &= driver->name != nullptr;
  SMDDP_DRIVER_FUNCTIONS(SMDDP_FIND)
#undef SMDDP_FIND
  if (complete) return Status::Ok();
  return Status(Reason::kBadState,
                "libcuda.so.1 is not an NVIDIA driver of CUDA 11.4 or newer: functions that these have are missing.");
}

Status Start(const Driver& driver) {
  int found = 0;
  SMDDP_CUDA(driver, cuDriverGetVersion, &found);
  constexpr int needed = CUDA_VERSION / 1000 * 1000;  // machine code runs on all drivers of its major version
  if (found < needed) {
    return Status(Reason::kBadState, "The GPU part of smddp_tf needs driver >= ", DriverText(needed), ", found ",
                  DriverText(found), ". Update the driver, or build smddp_tf with an older CUDA (docs/gpu.md).");
  }
  SMDDP_CUDA(driver, cuInit, 0);
  return Status::Ok();
}

Result<const Driver*> Load() {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return Status(Reason::kBadState, "This machine has no NVIDIA driver: libcuda.so.1 cannot be loaded (", dlerror(),
                  "). In a container: start it with its GPUs (docker run --gpus all).");
  }
  static Driver driver;
  SMDDP_RETURN_IF_ERROR(Find(library, &driver));
  const Status started = Start(driver);
  if (!started.ok()) return Status(Reason::kBadState, started.message());
  return static_cast<const Driver*>(&driver);
}

}  // namespace

Result<const Driver*> TheDriver() {
  static const Result<const Driver*> driver = Load();
  return driver;
}

Status CudaStatus(const Driver& driver, CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return Status::Ok();
  const Reason reason = result == CUDA_ERROR_OUT_OF_MEMORY ? Reason::kNoResources : Reason::kInternal;
  const char *name = nullptr, *message = nullptr;
  if (driver.cuGetErrorName(result, &name) != CUDA_SUCCESS) name = "an unknown error";
  if (driver.cuGetErrorString(result, &message) != CUDA_SUCCESS) message = "error";
  return Status(reason, "CUDA failed in ", call, ": ", message, " (", name, ").", HintFor(result));
}

}  // namespace smddp
