#include "contexts.h"

#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>

#include "groups.h"
#include "settings.h"

struct CUctx_st {
  int device;
};

namespace smddp::fake {
namespace {

struct Contexts {
  std::mutex mutex;
  std::map<int, CUctx_st> by_device;  // never destroyed
};
Contexts& All() {
  static Contexts* const all = new Contexts;
  return *all;
}

std::atomic<bool> initialised{false};

struct ThreadState {
  CUcontext current = nullptr;
  CUresult told = CUDA_SUCCESS;
  std::string words;  // about `told`
};
thread_local ThreadState thread;

}  // namespace

Gpu TheGpu() {
  const char* const value = std::getenv("FAKE_CUDA_GPU");
  const std::string name = value != nullptr ? value : "h100";
  if (name == "p100") return {"Tesla P100", 6, 0};
  if (name == "t4") return {"Tesla T4", 7, 5};
  if (name == "h100") return {"NVIDIA H100 80GB HBM3", 9, 0};
  Fatal("FAKE_CUDA_GPU is " + name + "; expected h100, t4 or p100.");
}

int DriverVersion() {
  const char* const value = std::getenv("FAKE_CUDA_DRIVER");
  return value != nullptr ? std::atoi(value) : CUDA_VERSION;
}

bool IsInitialised() { return initialised; }
void Initialise() { initialised = true; }

CUcontext Retain(int device) {
  Contexts& all = All();
  const std::lock_guard<std::mutex> lock(all.mutex);
  return &all.by_device.emplace(device, CUctx_st{device}).first->second;
}

bool IsContext(CUcontext context) {
  Contexts& all = All();
  const std::lock_guard<std::mutex> lock(all.mutex);
  for (const auto& [device, known] : all.by_device) {
    if (&known == context) return true;
  }
  return false;
}

CUcontext CurrentContext() { return thread.current; }
void SetCurrentContext(CUcontext context) { thread.current = context; }
int CurrentDevice() { return thread.current == nullptr ? -1 : thread.current->device; }

CUresult ResultOf(const Status& status) {
  if (status.ok()) return CUDA_SUCCESS;
  thread.told = status.reason() == Reason::kNoResources ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_UNKNOWN;
  thread.words = status.message();
  return thread.told;
}

const char* WordsOf(CUresult result) { return thread.told == result ? thread.words.c_str() : "an error"; }

}  // namespace smddp::fake
