#include "cuda/cuda_device.h"

#include <algorithm>
#include <utility>

namespace smddp {
namespace {

CUstream Native(DeviceStream stream) { return static_cast<CUstream>(stream); }
CUevent NativeEvent(DeviceEvent event) { return static_cast<CUevent>(event); }
CUdeviceptr Address(const void* memory) { return reinterpret_cast<CUdeviceptr>(memory); }

std::string HexOf(const CUuuid& uuid) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (const char byte : uuid.bytes) {
    hex += kDigits[static_cast<unsigned char>(byte) >> 4];
    hex += kDigits[static_cast<unsigned char>(byte) & 15];
  }
  return hex;
}

Result<DeviceInfo> Describe(const Driver& driver, CUdevice device, int index) {
  char name[256] = "", bus_id[32] = "";
  CUuuid uuid = {};
  DeviceInfo info;
  SMDDP_CUDA(driver, cuDeviceGetName, name, sizeof(name), device);
  SMDDP_CUDA(driver, cuDeviceGetUuid_v2, &uuid, device);
  SMDDP_CUDA(driver, cuDeviceGetPCIBusId, bus_id, sizeof(bus_id), device);
  SMDDP_CUDA(driver, cuDeviceGetAttribute, &info.processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
  info.index = index;
  info.name = name;
  info.uuid = HexOf(uuid);
  info.bus_id = bus_id;
  return info;
}

}  // namespace

CudaDevice::Current::Current(const Driver& driver, CUcontext context) : driver_(driver), context_(context) {
  driver_.cuCtxGetCurrent(&before_);
  if (before_ != context_) driver_.cuCtxSetCurrent(context_);
}

CudaDevice::Current::~Current() {
  if (before_ != context_) driver_.cuCtxSetCurrent(before_);
}

Result<std::unique_ptr<CudaDevice>> CudaDevice::Open(const Driver& driver, int index, const KernelImage& image) {
  CUdevice device = 0;
  CUcontext context = nullptr;
  SMDDP_CUDA(driver, cuDeviceGet, &device, index);
  SMDDP_ASSIGN_OR_RETURN(DeviceInfo info, Describe(driver, device, index));
  SMDDP_CUDA(driver, cuDevicePrimaryCtxRetain, &context, device);  // until the process ends
  const Current current(driver, context);
  int least = 0, greatest = 0;
  SMDDP_CUDA(driver, cuCtxGetStreamPriorityRange, &least, &greatest);
  std::unique_ptr<CudaDevice> opened(new CudaDevice(std::move(info), driver, context, greatest));
  SMDDP_RETURN_IF_ERROR(opened->LoadKernels(image));
  return opened;
}

// --- Memory ---

Result<void*> CudaDevice::Allocate(size_t bytes) {
  const Current current(*this);
  CUdeviceptr memory = 0;
  SMDDP_CUDA(driver_, cuMemAlloc_v2, &memory, std::max<size_t>(bytes, 1));
  return reinterpret_cast<void*>(memory);
}

void CudaDevice::Free(void* memory) {
  const Current current(*this);
  driver_.cuMemFree_v2(Address(memory));
}

Result<void*> CudaDevice::AllocatePinned(size_t bytes) {
  const Current current(*this);
  void* memory = nullptr;
  SMDDP_CUDA(driver_, cuMemHostAlloc, &memory, std::max<size_t>(bytes, 1), CU_MEMHOSTALLOC_PORTABLE);
  return memory;
}

void CudaDevice::FreePinned(void* memory) {
  const Current current(*this);
  driver_.cuMemFreeHost(memory);
}

// --- Order ---

Result<DeviceStream> CudaDevice::MakeStream() {
  const Current current(*this);
  CUstream stream = nullptr;
  SMDDP_CUDA(driver_, cuStreamCreateWithPriority, &stream, CU_STREAM_NON_BLOCKING, priority_);
  return static_cast<DeviceStream>(stream);
}

void CudaDevice::DestroyStream(DeviceStream stream) {
  const Current current(*this);
  driver_.cuStreamDestroy_v2(Native(stream));
}

Result<DeviceEvent> CudaDevice::MakeEvent() {
  const Current current(*this);
  CUevent event = nullptr;
  SMDDP_CUDA(driver_, cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
  return static_cast<DeviceEvent>(event);
}

void CudaDevice::DestroyEvent(DeviceEvent event) {
  const Current current(*this);
  driver_.cuEventDestroy_v2(NativeEvent(event));
}

Status CudaDevice::Record(DeviceEvent event, DeviceStream stream) {
  const Current current(*this);
  return SMDDP_CUDA_STATUS(driver_, cuEventRecord, NativeEvent(event), Native(stream));
}

Status CudaDevice::Wait(DeviceStream stream, DeviceEvent event) {
  const Current current(*this);
  return SMDDP_CUDA_STATUS(driver_, cuStreamWaitEvent, Native(stream), NativeEvent(event), 0);
}

Result<bool> CudaDevice::Done(DeviceEvent event) {
  const Current current(*this);
  const CUresult result = driver_.cuEventQuery(NativeEvent(event));
  if (result == CUDA_ERROR_NOT_READY) return false;
  SMDDP_RETURN_IF_ERROR(CudaStatus(driver_, result, "cuEventQuery"));
  return true;
}

// --- Work ---

Status CudaDevice::LoadKernels(const KernelImage& image) {
  CUmodule module = nullptr;  // never unloaded
  SMDDP_CUDA(driver_, cuModuleLoadData, &module, image.data);
  for (int to = 0; to < kElements; ++to) {
    for (int from = 0; from < kElements; ++from) {
      if (to != from && std::max(to, from) > static_cast<int>(Element::kDouble)) continue;  // copied only
      const std::string name = "smddp_move_" + std::to_string(to) + "_" + std::to_string(from);
      int registers = 0;  // asking for them loads the kernel
      SMDDP_CUDA(driver_, cuModuleGetFunction, &kernels_[to][from], module, name.c_str());
      SMDDP_CUDA(driver_, cuFuncGetAttribute, &registers, CU_FUNC_ATTRIBUTE_NUM_REGS, kernels_[to][from]);
    }
  }
  return Status::Ok();
}

Status CudaDevice::Copy(void* to, const void* from, size_t bytes, DeviceStream stream) {
  if (bytes == 0) return Status::Ok();
  const Current current(*this);
  return SMDDP_CUDA_STATUS(driver_, cuMemcpyAsync, Address(to), Address(from), bytes, Native(stream));
}

// Each by a small number of blocks that loop until the work is done.
Status CudaDevice::LaunchAll(const std::vector<MoveJob>& jobs, DeviceStream stream) const {
  const Current current(*this);
  const uint32_t most = static_cast<uint32_t>(info_.processors) * kBlocksPerProcessor;
  for (const MoveJob& job : jobs) {
    const uint32_t blocks = std::min(job.starts[job.count] / kSmallestTile + 2, most);  // the first tile may be shorter
    void* parameters[] = {const_cast<MoveJob*>(&job)};
    SMDDP_CUDA(driver_, cuLaunchKernel, kernels_[static_cast<int>(job.to)][static_cast<int>(job.from)], blocks, 1, 1,
               kBlockThreads, 1, 1, 0, Native(stream), parameters, nullptr);
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
