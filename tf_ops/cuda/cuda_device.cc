#include "cuda/cuda_device.h"

#include <algorithm>
#include <utility>

#include "cuda/cuda_status.h"
#include "cuda/kernels/launch.h"

namespace smddp {
namespace {

cudaStream_t Native(DeviceStream stream) { return static_cast<cudaStream_t>(stream); }
cudaEvent_t NativeEvent(DeviceEvent event) { return static_cast<cudaEvent_t>(event); }

std::string HexOf(const cudaUUID_t& uuid) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (const char byte : uuid.bytes) {
    hex += kDigits[static_cast<unsigned char>(byte) >> 4];
    hex += kDigits[static_cast<unsigned char>(byte) & 15];
  }
  return hex;
}

Result<DeviceInfo> Describe(int index) {
  cudaDeviceProp properties;
  SMDDP_CUDA(cudaGetDeviceProperties, &properties, index);
  char bus_id[32] = "";
  SMDDP_CUDA(cudaDeviceGetPCIBusId, bus_id, sizeof(bus_id), index);
  DeviceInfo info;
  info.index = index;
  info.name = properties.name;
  info.uuid = HexOf(properties.uuid);
  info.bus_id = bus_id;
  info.bytes = properties.totalGlobalMem;
  info.processors = properties.multiProcessorCount;
  return info;
}

// Restores the thread's context.
class KeepContext {
 public:
  explicit KeepContext(const Driver& driver) : driver_(driver) { driver_.context_get(&before_); }
  ~KeepContext() { driver_.context_set(before_); }
  KeepContext(const KeepContext&) = delete;
  KeepContext& operator=(const KeepContext&) = delete;

 private:
  const Driver& driver_;
  CUcontext before_ = nullptr;
};

}  // namespace

CudaDevice::Current::Current(const CudaDevice& device) : device_(device) {
  device_.driver_.context_get(&before_);
  if (before_ != device_.context_) device_.driver_.context_set(device_.context_);
}

CudaDevice::Current::~Current() {
  if (before_ != device_.context_) device_.driver_.context_set(before_);
}

Result<std::unique_ptr<CudaDevice>> CudaDevice::Open(int index) {
  SMDDP_ASSIGN_OR_RETURN(const Driver* driver, TheDriver());
  const KeepContext keep(*driver);
  SMDDP_CUDA(cudaSetDevice, index);
  SMDDP_CUDA(cudaFree, nullptr);  // before CUDA 12 the first call that needs a context creates it
  CUcontext context = nullptr;
  driver->context_get(&context);
  SMDDP_ASSIGN_OR_RETURN(DeviceInfo info, Describe(index));
  int least = 0, greatest = 0;
  SMDDP_CUDA(cudaDeviceGetStreamPriorityRange, &least, &greatest);
  SMDDP_CUDA(LoadMoveKernels);
  return std::unique_ptr<CudaDevice>(new CudaDevice(std::move(info), *driver, context, greatest));
}

// --- Memory ---

Result<void*> CudaDevice::Allocate(size_t bytes) {
  const Current current(*this);
  void* memory = nullptr;
  SMDDP_CUDA(cudaMalloc, &memory, std::max<size_t>(bytes, 1));
  return memory;
}

void CudaDevice::Free(void* memory) {
  const Current current(*this);
  cudaFree(memory);
}

Result<void*> CudaDevice::AllocatePinned(size_t bytes) {
  const Current current(*this);
  void* memory = nullptr;
  SMDDP_CUDA(cudaHostAlloc, &memory, std::max<size_t>(bytes, 1), cudaHostAllocPortable);
  return memory;
}

void CudaDevice::FreePinned(void* memory) {
  const Current current(*this);
  cudaFreeHost(memory);
}

// --- Order ---

Result<DeviceStream> CudaDevice::MakeStream() {
  const Current current(*this);
  cudaStream_t stream = nullptr;
  SMDDP_CUDA(cudaStreamCreateWithPriority, &stream, cudaStreamNonBlocking, priority_);
  return static_cast<DeviceStream>(stream);
}

void CudaDevice::DestroyStream(DeviceStream stream) {
  const Current current(*this);
  cudaStreamDestroy(Native(stream));
}

Result<DeviceEvent> CudaDevice::MakeEvent() {
  const Current current(*this);
  cudaEvent_t event = nullptr;
  SMDDP_CUDA(cudaEventCreateWithFlags, &event, cudaEventDisableTiming);
  return static_cast<DeviceEvent>(event);
}

void CudaDevice::DestroyEvent(DeviceEvent event) {
  const Current current(*this);
  cudaEventDestroy(NativeEvent(event));
}

Status CudaDevice::Record(DeviceEvent event, DeviceStream stream) {
  const Current current(*this);
  return CudaStatus(cudaEventRecord(NativeEvent(event), Native(stream)), "cudaEventRecord");
}

Status CudaDevice::Wait(DeviceStream stream, DeviceEvent event) {
  const Current current(*this);
  return CudaStatus(cudaStreamWaitEvent(Native(stream), NativeEvent(event), 0), "cudaStreamWaitEvent");
}

Result<bool> CudaDevice::Done(DeviceEvent event) {
  const Current current(*this);
  const cudaError_t error = cudaEventQuery(NativeEvent(event));
  if (error == cudaErrorNotReady) {
    cudaGetLastError();  // clears it: "not ready" is stored as the last error
    return false;
  }
  SMDDP_RETURN_IF_ERROR(CudaStatus(error, "cudaEventQuery"));
  return true;
}

// --- Work ---

Status CudaDevice::Copy(void* to, const void* from, size_t bytes, DeviceStream stream) {
  if (bytes == 0) return Status::Ok();
  const Current current(*this);
  return CudaStatus(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, Native(stream)), "cudaMemcpyAsync");
}

Status CudaDevice::LaunchAll(const std::vector<MoveJob>& jobs, DeviceStream stream) const {
  const Current current(*this);
  for (const MoveJob& job : jobs) {
    SMDDP_RETURN_IF_ERROR(CudaStatus(Launch(job, info_.processors, Native(stream)), "the launch of a kernel"));
  }
  return Status::Ok();
}

Status CudaDevice::Pack(const FusedView& view, Range range, void* into, DeviceStream stream) {
  SMDDP_ASSIGN_OR_RETURN(const std::vector<MoveJob> jobs, PlanPack(view, range, into));
  return LaunchAll(jobs, stream);
}

Status CudaDevice::Unpack(const FusedView& view, Range range, const void* from, DeviceStream stream) {
  SMDDP_ASSIGN_OR_RETURN(const std::vector<MoveJob> jobs, PlanUnpack(view, range, from));
  return LaunchAll(jobs, stream);
}

}  // namespace smddp
