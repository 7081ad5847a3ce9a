// libcuda.so.1: the functions that tf_ops/cuda looks up (SMDDP_DRIVER_FUNCTIONS), on the fake GPU. contexts.h says what
// they enforce. This library is the driver too: it is linked with --wrap=dlopen.
#pragma GCC visibility push(default)
#include <cuda.h>
#pragma GCC visibility pop
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

#include "calls.h"
#include "contexts.h"
#include "groups.h"
#include "kernel_launch.h"
#include "memory.h"
#include "settings.h"
#include "stream.h"

namespace fake = smddp::fake;
using fake::CurrentDevice;
using fake::ResultOf;
using smddp::Result;

namespace {

constexpr int kLeastPriority = 0, kGreatestPriority = -5;

// Returns from a function that needs a context when the thread has none.
#define NEEDS_CONTEXT(device)                                    \
  if (!fake::IsInitialised()) return CUDA_ERROR_NOT_INITIALIZED; \
  const int device = CurrentDevice();                            \
  if (device < 0) return CUDA_ERROR_INVALID_CONTEXT
// The same of a function that describes a device.
#define NEEDS_DEVICE(device)                                     \
  if (!fake::IsInitialised()) return CUDA_ERROR_NOT_INITIALIZED; \
  if (device < 0 || device >= fake::Read().devices) return CUDA_ERROR_INVALID_DEVICE

void* MemoryAt(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

template <class Handle>
CUresult Give(Result<void*> made, Handle* into) {
  if (!made.ok()) return ResultOf(made.status());
  *into = (Handle)*made;  // a pointer or a number
  return CUDA_SUCCESS;
}

}  // namespace

// --- The driver ---

CUresult cuInit(unsigned) {
  if (fake::Read().devices == 0) return CUDA_ERROR_NO_DEVICE;
  fake::Initialise();
  return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int* version) {
  *version = fake::DriverVersion();
  return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char** words) {
  *words = fake::WordsOf(error);
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char** name) {
  switch (error) {
#define NAMED(code) \
  case code:        \
    *name = #code;  \
    return CUDA_SUCCESS
    NAMED(CUDA_ERROR_INVALID_VALUE);
    NAMED(CUDA_ERROR_OUT_OF_MEMORY);
    NAMED(CUDA_ERROR_NOT_INITIALIZED);
    NAMED(CUDA_ERROR_NO_DEVICE);
    NAMED(CUDA_ERROR_INVALID_DEVICE);
    NAMED(CUDA_ERROR_INVALID_CONTEXT);
    NAMED(CUDA_ERROR_INVALID_HANDLE);
    NAMED(CUDA_ERROR_NO_BINARY_FOR_GPU);
    NAMED(CUDA_ERROR_NOT_FOUND);
    NAMED(CUDA_ERROR_NOT_READY);
    NAMED(CUDA_ERROR_UNKNOWN);
#undef NAMED
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// --- Devices ---

CUresult cuDeviceGetCount(int* count) {
  if (!fake::IsInitialised()) return CUDA_ERROR_NOT_INITIALIZED;
  *count = fake::Read().devices;
  return ResultOf(fake::Call("count"));
}

CUresult cuDeviceGet(CUdevice* device, int index) {
  NEEDS_DEVICE(index);
  *device = index;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char* into, int room, CUdevice device) {
  NEEDS_DEVICE(device);
  std::snprintf(into, room, "%s", fake::TheGpu().name);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  NEEDS_DEVICE(device);
  const int process = fake::Read().shared ? 0 : getpid();  // slices of one GPU have different uuids, too
  *uuid = {};
  std::memcpy(uuid->bytes, &device, sizeof device);
  std::memcpy(uuid->bytes + sizeof device, &process, sizeof process);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char* into, int room, CUdevice device) {
  NEEDS_DEVICE(device);
  const fake::Settings settings = fake::Read();
  const int domain = settings.shared || settings.slices ? 0 : getpid() & 0xffff;
  std::snprintf(into, room, "%04X:%02X:00.0", domain, 0x3b + device);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  NEEDS_DEVICE(device);
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *value = fake::TheGpu().major;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      *value = fake::TheGpu().minor;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      *value = fake::kProcessors;
      return CUDA_SUCCESS;
    default:
      fake::Fatal("cuDeviceGetAttribute of attribute " + std::to_string(attribute) + ".");
  }
}

// --- Contexts ---

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  NEEDS_DEVICE(device);
  *context = fake::Retain(device);
  return ResultOf(fake::Call("open"));
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  if (!fake::IsInitialised()) return CUDA_ERROR_NOT_INITIALIZED;
  *context = fake::CurrentContext();
  return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
  if (!fake::IsInitialised()) return CUDA_ERROR_NOT_INITIALIZED;
  if (context != nullptr && !fake::IsContext(context)) return CUDA_ERROR_INVALID_CONTEXT;
  fake::SetCurrentContext(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  NEEDS_CONTEXT(device);
  *least = kLeastPriority;
  *greatest = kGreatestPriority;
  return ResultOf(fake::Broken(device));
}

// --- Memory ---

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr address) {
  if (!fake::IsInitialised()) return CUDA_ERROR_NOT_INITIALIZED;
  const std::shared_ptr<fake::Block> block = fake::BlockOf(MemoryAt(address));
  if (block == nullptr) return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      if (const smddp::Status failed = fake::Call("device_of"); !failed.ok()) return ResultOf(failed);
      *static_cast<unsigned*>(data) = block->kind == fake::Kind::kPinned ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *static_cast<int*>(data) = block->device;
      return CUDA_SUCCESS;
    default:
      fake::Fatal("cuPointerGetAttribute of attribute " + std::to_string(attribute) + ".");
  }
}

CUresult cuMemAlloc_v2(CUdeviceptr* memory, size_t bytes) {
  NEEDS_CONTEXT(device);
  return bytes == 0 ? CUDA_ERROR_INVALID_VALUE : Give(fake::NewMemory(device, bytes), memory);
}

CUresult cuMemFree_v2(CUdeviceptr memory) {
  NEEDS_CONTEXT(device);
  fake::FreeMemory(device, MemoryAt(memory));
  return CUDA_SUCCESS;
}

CUresult cuMemHostAlloc(void** memory, size_t bytes, unsigned flags) {
  NEEDS_CONTEXT(device);
  if (flags != CU_MEMHOSTALLOC_PORTABLE) fake::Fatal("cuMemHostAlloc of memory that is pinned for one device only.");
  return bytes == 0 ? CUDA_ERROR_INVALID_VALUE : Give(fake::NewPinned(device, bytes), memory);
}

CUresult cuMemFreeHost(void* memory) {
  NEEDS_CONTEXT(device);
  fake::FreePinned(device, memory);
  return CUDA_SUCCESS;
}

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  NEEDS_CONTEXT(device);
  return ResultOf(fake::Copy(device, MemoryAt(to), MemoryAt(from), bytes, stream));
}

// --- Order ---

CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
  NEEDS_CONTEXT(device);
  if (flags != CU_STREAM_NON_BLOCKING)
    fake::Fatal("A stream that waits for the default stream, and it for the stream.");
  if (priority == kGreatestPriority) fake::Add("urgent_streams", 1);
  return Give(fake::NewStream(device), stream);
}

CUresult cuStreamDestroy_v2(CUstream stream) {
  NEEDS_CONTEXT(device);
  fake::DestroyStream(device, stream);
  return CUDA_SUCCESS;
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
  NEEDS_CONTEXT(device);
  return flags != 0 ? CUDA_ERROR_INVALID_VALUE : ResultOf(fake::Wait(device, stream, event));
}

CUresult cuEventCreate(CUevent* event, unsigned flags) {
  NEEDS_CONTEXT(device);
  if (flags != CU_EVENT_DISABLE_TIMING) fake::Fatal("An event that takes the time, which costs it.");
  return Give(fake::NewEvent(device), event);
}

CUresult cuEventDestroy_v2(CUevent event) {
  NEEDS_CONTEXT(device);
  fake::DestroyEvent(device, event);
  return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
  NEEDS_CONTEXT(device);
  return ResultOf(fake::Record(device, event, stream));
}

CUresult cuEventQuery(CUevent event) {
  NEEDS_CONTEXT(device);
  const Result<bool> done = fake::Done(device, event);
  if (!done.ok()) return ResultOf(done.status());
  return *done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

// --- Kernels ---

CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  NEEDS_CONTEXT(device);
  return fake::LoadModule(device, static_cast<const char*>(image), module);
}

CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  NEEDS_CONTEXT(device);
  return fake::FindKernel(device, module, name, function);
}

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction function) {
  NEEDS_CONTEXT(device);
  if (function == nullptr || attribute != CU_FUNC_ATTRIBUTE_NUM_REGS) return CUDA_ERROR_INVALID_VALUE;
  *value = 64;
  return ResultOf(fake::Broken(device));
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                        unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void** parameters,
                        void** extra) {
  NEEDS_CONTEXT(device);
  if (grid_x == 0 || grid_y != 1 || grid_z != 1 || block_x == 0 || block_y != 1 || block_z != 1) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (shared_bytes != 0 || extra != nullptr) fake::Fatal("cuLaunchKernel with more than parameters.");
  return fake::Launch(device, function, {grid_x, block_x}, *parameters, stream);
}

// --- Loading ---

extern "C" {

void* __real_dlopen(const char* name, int flags);

// Finds the driver in this library, and gives the fake GPU to an NCCL that was made for it.
void* __wrap_dlopen(const char* name, int flags) {
  if (name != nullptr && std::strcmp(name, "libcuda.so.1") == 0) {
    Dl_info here = {};
    if (dladdr(reinterpret_cast<void*>(&cuInit), &here) == 0) fake::Fatal("dladdr does not know this library.");
    return __real_dlopen(fake::DriverVersion() == 0 ? "libcuda.so.1 of no driver" : here.dli_fname, flags);
  }
  void* const library = __real_dlopen(name, flags);
  if (library != nullptr) fake::HandOver(library);
  return library;
}

}  // extern "C"
