#include "cuda/cuda_status.h"

#include <string>

namespace smddp {
namespace {

// The usual cause, "" where there is no typical one.
const char* HintFor(cudaError_t error) {
  switch (error) {
    case cudaErrorNoDevice:
      return "The driver shows this process no GPU: CUDA_VISIBLE_DEVICES hides them, or the container was started "
             "without them.";
    case cudaErrorInsufficientDriver:
    case cudaErrorCallRequiresNewerDriver:
      return "The NVIDIA driver is older than the CUDA that smddp_tf was built with: update the driver, or build with "
             "an older toolkit (SMDDP_CUDA_HOME).";
    case cudaErrorSystemDriverMismatch:
      return "The driver's library and its kernel module differ: restart the machine after an update of the driver.";
    case cudaErrorSystemNotReady:
      return "A service that the GPUs need is not running, such as nvidia-fabricmanager.";
    case cudaErrorMemoryAllocation:
      return "The GPU's memory is taken: TensorFlow takes nearly all of it at its start unless told otherwise, by "
             "tf.config.experimental.set_memory_growth or TF_FORCE_GPU_ALLOW_GROWTH=true; see who else uses the GPU "
             "with nvidia-smi.";
    case cudaErrorDevicesUnavailable:
      return "Another process has the GPU for itself (compute mode exclusive), or it is broken; see nvidia-smi.";
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
      return "smddp_tf has code for GPUs of compute capability 8.0 and newer (A100, H100, B200, RTX 30 and later). For "
             "a newer one the driver must be as new as the CUDA it was built with.";
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorAssert:
      return "Some kernel of this process, not necessarily one of smddp_tf, has failed, and the GPU can no longer be "
             "used by it; CUDA_LAUNCH_BLOCKING=1 or compute-sanitizer shows which.";
    case cudaErrorECCUncorrectable:
    case cudaErrorHardwareStackError:
    case cudaErrorNvlinkUncorrectable:
      return "A hardware fault; nvidia-smi -q and dmesg show details.";
    default:
      return "";
  }
}

}  // namespace

Status CudaStatus(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return Status::Ok();
  cudaGetLastError();
  const Reason reason = error == cudaErrorMemoryAllocation ? Reason::kNoResources : Reason::kInternal;
  std::string text =
      std::string("CUDA failed in ") + call + ": " + cudaGetErrorString(error) + " (" + cudaGetErrorName(error) + ").";
  const char* const hint = HintFor(error);
  if (*hint != '\0') text += std::string(" ") + hint;
  return Status(reason, text);
}

}  // namespace smddp
