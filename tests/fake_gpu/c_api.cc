// What tests and the fake NCCL use of the fake GPU, beyond the engine's interface. Functions that can fail return null
// or a number below 0, and fake_gpu_error says why.
#include "c_api.h"

#include <chrono>
#include <cstring>
#include <string>
#include <thread>

#include "memory.h"
#include "settings.h"
#include "stream.h"

using smddp::Device;
using smddp::Result;
using smddp::Status;
namespace fake = smddp::fake;

SMDDP_EXPORT smddp::DevicePlugin* smddp_make_device_plugin(int version, const char* nccl);

smddp::DevicePlugin& fake::ThePlugin() { return *smddp_make_device_plugin(smddp::kDevicePluginVersion, ""); }

namespace {
thread_local std::string last_error;
}

int Noted(const Status& status) {
  last_error = status.ToString();
  return status.ok() ? 0 : -1;
}

int Text(const Result<std::string>& text, char* into, size_t room) {
  if (!text.ok()) return Noted(text.status());
  if (text.value().size() >= room) return -1;
  std::memcpy(into, text.value().c_str(), text.value().size() + 1);
  return 0;
}

Device& At(int index) {
  const Result<Device*> device = fake::ThePlugin().Open(index);
  if (!device.ok()) fake::Fatal(device.status().message());
  return *device.value();
}

SMDDP_EXPORT const char* fake_gpu_error() { return last_error.c_str(); }
SMDDP_EXPORT void fake_gpu_reload() { fake::Reload(); }
// Alive: allocations pinned streams events, allocated_bytes pinned_bytes. Calls so far: the kinds of settings.h.
// waits_of_host: copies for which the host waited.
SMDDP_EXPORT long long fake_gpu_count(const char* what) {
  const int64_t calls = fake::Calls(what);
  return calls >= 0 ? calls : fake::CountOf(what);
}
SMDDP_EXPORT void* fake_gpu_device(int index) { return &At(index); }

// -1: host memory.
SMDDP_EXPORT int fake_gpu_device_of(const void* memory) {
  const Result<int> device = fake::ThePlugin().DeviceOf(memory);
  return device.ok() ? *device : -2 + Noted(device.status());
}

SMDDP_EXPORT void* fake_gpu_allocate(int device, size_t bytes) {
  return Noted(At(device).Allocate(bytes), static_cast<void*>(nullptr));
}
SMDDP_EXPORT void fake_gpu_free(int device, void* memory) { At(device).Free(memory); }
SMDDP_EXPORT void* fake_gpu_allocate_pinned(int device, size_t bytes) {
  return Noted(At(device).AllocatePinned(bytes), static_cast<void*>(nullptr));
}
SMDDP_EXPORT void fake_gpu_free_pinned(int device, void* memory) { At(device).FreePinned(memory); }
// At once and on no stream, whatever FAKE_GPU_FAIL says: for the tests' own needs.
SMDDP_EXPORT void fake_gpu_read(void* into, const void* from, size_t bytes) {
  std::memcpy(into, fake::Touch(from, bytes, "fake_gpu_read").data(), bytes);
}
SMDDP_EXPORT void fake_gpu_write(void* into, const void* from, size_t bytes) {
  std::memcpy(fake::Touch(into, bytes, "fake_gpu_write").data(), from, bytes);
}

SMDDP_EXPORT void* fake_gpu_make_stream(int device) {
  return Noted(At(device).MakeStream(), static_cast<void*>(nullptr));
}
SMDDP_EXPORT void fake_gpu_destroy_stream(int device, void* stream) { At(device).DestroyStream(stream); }
SMDDP_EXPORT void* fake_gpu_make_event(int device) {
  return Noted(At(device).MakeEvent(), static_cast<void*>(nullptr));
}
SMDDP_EXPORT void fake_gpu_destroy_event(int device, void* event) { At(device).DestroyEvent(event); }
SMDDP_EXPORT int fake_gpu_record(int device, void* event, void* stream) {
  return Noted(At(device).Record(event, stream));
}
SMDDP_EXPORT int fake_gpu_wait(int device, void* stream, void* event) { return Noted(At(device).Wait(stream, event)); }
SMDDP_EXPORT int fake_gpu_done(int device, void* event) {
  const Result<bool> done = At(device).Done(event);
  return done.ok() ? done.value() : Noted(done.status());
}
SMDDP_EXPORT int fake_gpu_copy(int device, void* to, const void* from, size_t bytes, void* stream) {
  return Noted(At(device).Copy(to, from, bytes, stream));
}
SMDDP_EXPORT int fake_gpu_zero(int device, void* memory, size_t bytes, void* stream) {
  const std::shared_ptr<fake::Stream> on = fake::StreamOf(device, stream, "Zero");
  const auto span = std::make_shared<fake::Span>(fake::TouchByKernel(device, memory, bytes, "Zero"));
  Status status = fake::Broken(device);
  if (status.ok()) status = fake::Call("zero");
  if (status.ok()) on->Put([=] { std::memset(span->data(), 0, bytes); });
  return Noted(status);
}
// Fills memory with kPoison in the order of the stream; no call of the engine's interface.
SMDDP_EXPORT void fake_gpu_poison(int device, void* memory, size_t bytes, void* stream) {
  const auto span = std::make_shared<fake::Span>(fake::TouchByKernel(device, memory, bytes, "fake_gpu_poison"));
  fake::StreamOf(device, stream, "fake_gpu_poison")->Put([=] { std::memset(span->data(), fake::kPoison, bytes); });
}
// Waits until the stream has run what it holds by now. 0: it has not within the seconds.
SMDDP_EXPORT int fake_gpu_synchronize(int device, void* stream, double seconds) {
  const std::shared_ptr<fake::Moment> moment = fake::StreamOf(device, stream, "fake_gpu_synchronize")->Now();
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!moment->has_come()) {
    if (std::chrono::steady_clock::now() > end) return 0;
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  return 1;
}

// Work of others, in the order of the stream.
SMDDP_EXPORT void fake_gpu_enqueue(int device, void* stream, void (*work)(void*), void* argument) {
  fake::StreamOf(device, stream, "fake_gpu_enqueue")->Put([=] { work(argument); });
}
