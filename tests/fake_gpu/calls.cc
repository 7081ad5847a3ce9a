#include "calls.h"

#include <cstring>
#include <memory>
#include <mutex>
#include <string>

#include "memory.h"
#include "settings.h"
#include "stream.h"

namespace smddp::fake {
namespace {

// With FAKE_GPU_SYNC: at each call, or at every other one, at random.
void WaitAsCudaMay(int device, bool always) {
  if (Read().sync && (always || RandomBit())) WaitForDevice(device);
}

}  // namespace

Status Begin(int device, const char* kind) {
  SMDDP_RETURN_IF_ERROR(Broken(device));
  return Call(kind);
}

Result<void*> NewMemory(int device, size_t bytes) {
  SMDDP_RETURN_IF_ERROR(Broken(device));
  WaitAsCudaMay(device, false);
  return AllocateDevice(device, bytes);
}

void FreeMemory(int device, void* memory) {
  WaitAsCudaMay(device, true);
  Release(device, memory, Kind::kDevice, "Free");
}

Result<void*> NewPinned(int device, size_t bytes) {
  SMDDP_RETURN_IF_ERROR(Broken(device));
  WaitAsCudaMay(device, true);
  return AllocatePinned(device, bytes);
}

void FreePinned(int device, void* memory) {
  WaitAsCudaMay(device, true);
  Release(device, memory, Kind::kPinned, "FreePinned");
}

Result<void*> NewStream(int device) {
  SMDDP_RETURN_IF_ERROR(Begin(device, "stream"));
  return MakeStream(device);
}

Result<void*> NewEvent(int device) {
  SMDDP_RETURN_IF_ERROR(Begin(device, "event"));
  return MakeEvent(device);
}

Status Record(int device, void* event, void* stream) {
  const std::shared_ptr<Event> found = EventOf(event, "Record");
  const std::shared_ptr<Stream> on = StreamOf(device, stream, "Record");
  if (found->device != device) Fatal("Record got an event of another device than the stream's.");
  SMDDP_RETURN_IF_ERROR(Begin(device, "record"));
  const std::lock_guard<std::mutex> lock(found->mutex);
  found->recorded = on->Now();
  return Status::Ok();
}

Status Wait(int device, void* stream, void* event) {
  const std::shared_ptr<Event> found = EventOf(event, "Wait");
  const std::shared_ptr<Stream> on = StreamOf(device, stream, "Wait");
  SMDDP_RETURN_IF_ERROR(Begin(device, "wait"));
  const std::lock_guard<std::mutex> lock(found->mutex);
  if (const std::shared_ptr<Moment> moment = found->recorded) on->Put([moment] { moment->Wait(); });
  return Status::Ok();
}

Result<bool> Done(int device, void* event) {
  const std::shared_ptr<Event> found = EventOf(event, "Done");
  if (found->device != device) {
    Fatal("Done got an event of device " + std::to_string(found->device) + " at device " + std::to_string(device) +
          ".");
  }
  SMDDP_RETURN_IF_ERROR(Begin(device, "done"));
  const std::lock_guard<std::mutex> lock(found->mutex);
  return found->recorded == nullptr || found->recorded->has_come();
}

Status Copy(int device, void* to, const void* from, size_t bytes, void* stream) {
  const std::shared_ptr<Stream> on = StreamOf(device, stream, "Copy");
  const auto target = std::make_shared<Span>(Touch(to, bytes, "Copy"));
  const auto source = std::make_shared<Span>(Touch(from, bytes, "Copy"));
  SMDDP_RETURN_IF_ERROR(Begin(device, "copy"));
  on->Put([=] { std::memmove(target->data(), source->data(), bytes); });
  const bool pageable = target->block() == nullptr || source->block() == nullptr;
  if (bytes == 0 || !pageable || !Read().pageable_waits) return Status::Ok();
  Add("waits_of_host", 1);
  on->Now()->Wait();
  return Status::Ok();
}

}  // namespace smddp::fake
