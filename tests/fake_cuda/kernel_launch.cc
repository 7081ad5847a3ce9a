#include "kernel_launch.h"

#include <dlfcn.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "calls.h"
#include "contexts.h"
#include "cuda/kernels/job_tables.h"
#include "memory.h"
#include "settings.h"
#include "shim.h"
#include "stream.h"

thread_local ShimIndex gridDim, blockIdx, threadIdx;

// Of one device, whose context was current.
struct CUmod_st {
  int device;
};
struct CUfunc_st {
  int device;
  void (*kernel)(smddp::MoveJob);
};

namespace smddp::fake {
namespace {

constexpr unsigned kMostThreads = 256;  // what the kernels' launch bounds say

size_t BytesOf(Element element) {
  constexpr size_t kBytes[] = {2, 2, 4, 8, 1, 2, 4, 8};
  return kBytes[static_cast<int>(element)];
}

// A launch with the memory it uses, as the work reaches it.
struct Work {
  void (*kernel)(MoveJob);
  Shape shape;
  MoveJob job;
  std::vector<Span> spans;

  void* Hold(int device, const void* memory, size_t bytes) {
    spans.push_back(TouchByKernel(device, memory, bytes, job.packs ? "Pack" : "Unpack"));
    return spans.back().data();
  }
  void HoldAll(int device) {
    const size_t packed_bytes = BytesOf(job.packs ? job.to : job.from);
    const size_t piece_bytes = BytesOf(job.packs ? job.from : job.to);
    job.packed = Hold(device, job.packed, job.starts[job.count] * packed_bytes);
    for (uint32_t i = 0; i < job.count; ++i) {
      if (job.pieces[i] == nullptr) continue;
      job.pieces[i] = Hold(device, job.pieces[i], (job.starts[i + 1] - job.starts[i]) * piece_bytes);
    }
  }
  void Run() const {
    gridDim.x = shape.blocks;
    for (blockIdx.x = 0; blockIdx.x < shape.blocks; ++blockIdx.x) {
      for (threadIdx.x = 0; threadIdx.x < shape.threads; ++threadIdx.x) kernel(job);
    }
  }
};

}  // namespace

CUresult LoadModule(int device, const char* image, CUmodule* module) {
  if (const Status broken = Broken(device); !broken.ok()) return ResultOf(broken);
  int capability = 0;
  const bool machine_code = std::sscanf(image, "machine code %d", &capability) == 1;
  if (!machine_code && std::sscanf(image, "PTX %d", &capability) != 1) return CUDA_ERROR_INVALID_IMAGE;
  const Gpu gpu = TheGpu();
  if (capability > 10 * gpu.major + gpu.minor || (machine_code && capability / 10 != gpu.major)) {
    return CUDA_ERROR_NO_BINARY_FOR_GPU;
  }
  *module = new CUmod_st{device};  // never unloaded
  return CUDA_SUCCESS;
}

CUresult FindKernel(int device, CUmodule module, const char* name, CUfunction* function) {
  if (module->device != device) return CUDA_ERROR_INVALID_CONTEXT;
  Dl_info here = {};
  if (dladdr(reinterpret_cast<void*>(&cuInit), &here) == 0) Fatal("dladdr does not know this library.");
  void* const library = dlopen(here.dli_fname, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  void* const found = dlsym(library, name);
  if (found == nullptr) return CUDA_ERROR_NOT_FOUND;
  *function = new CUfunc_st{device, reinterpret_cast<void (*)(MoveJob)>(found)};
  return CUDA_SUCCESS;
}

CUresult Launch(int device, CUfunction function, Shape shape, const void* parameter, CUstream stream) {
  const std::shared_ptr<Stream> on = StreamOf(device, stream, "cuLaunchKernel");
  if (function == nullptr || function->device != device) return CUDA_ERROR_INVALID_HANDLE;
  if (shape.threads > kMostThreads) return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  const auto work = std::make_shared<Work>();
  work->kernel = function->kernel;
  work->shape = shape;
  work->job = *static_cast<const MoveJob*>(parameter);
  if (const Status failed = Begin(device, work->job.packs ? "pack" : "unpack"); !failed.ok()) return ResultOf(failed);
  work->HoldAll(device);
  on->Put([work] { work->Run(); });
  return CUDA_SUCCESS;
}

}  // namespace smddp::fake
