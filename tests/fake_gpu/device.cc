// tf_ops/device in host memory. See settings.h for what can be set.
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "device/plugin.h"
#include "groups.h"
#include "kernels.h"
#include "memory.h"
#include "settings.h"
#include "stream.h"

namespace smddp::fake {
namespace {

using SharedSpan = std::shared_ptr<Span>;
SharedSpan Shared(Span span) { return std::make_shared<Span>(std::move(span)); }

class FakeDevice final : public Device {
 public:
  explicit FakeDevice(int index) {
    const Settings settings = Read();
    info_.index = index;
    info_.name = "Fake GPU";
    const std::string own = "-of-" + std::to_string(getpid());
    info_.uuid = "GPU-fake-" + std::to_string(index) + (settings.shared ? "" : own);
    info_.bus_id = "FAKE:" + std::to_string(index) + ":00.0" + (settings.shared || settings.slices ? "" : own);
    info_.bytes = settings.memory;
    info_.processors = 4;
  }
  const DeviceInfo& info() const override { return info_; }

  Result<void*> Allocate(size_t bytes) override {
    SMDDP_RETURN_IF_ERROR(Broken(info_.index));
    return AllocateDevice(info_.index, bytes);
  }
  void Free(void* memory) override { Release(info_.index, memory, Kind::kDevice, "Free"); }
  Result<void*> AllocatePinned(size_t bytes) override {
    SMDDP_RETURN_IF_ERROR(Broken(info_.index));
    return fake::AllocatePinned(info_.index, bytes);
  }
  void FreePinned(void* memory) override { Release(info_.index, memory, Kind::kPinned, "FreePinned"); }

  Result<DeviceStream> MakeStream() override {
    SMDDP_RETURN_IF_ERROR(Begin("stream"));
    return fake::MakeStream(info_.index);
  }
  void DestroyStream(DeviceStream stream) override { fake::DestroyStream(info_.index, stream); }
  Result<DeviceEvent> MakeEvent() override {
    SMDDP_RETURN_IF_ERROR(Begin("event"));
    return fake::MakeEvent(info_.index);
  }
  void DestroyEvent(DeviceEvent event) override { fake::DestroyEvent(info_.index, event); }

  Status Record(DeviceEvent event, DeviceStream stream) override {
    const std::shared_ptr<Event> found = EventOf(event, "Record");
    const std::shared_ptr<Stream> on = StreamOf(info_.index, stream, "Record");
    if (found->device != info_.index) Fatal("Record got an event of another device than the stream's.");
    SMDDP_RETURN_IF_ERROR(Begin("record"));
    const std::lock_guard<std::mutex> lock(found->mutex);
    found->recorded = on->Now();
    return Status::Ok();
  }
  Status Wait(DeviceStream stream, DeviceEvent event) override {
    const std::shared_ptr<Event> found = EventOf(event, "Wait");
    const std::shared_ptr<Stream> on = StreamOf(info_.index, stream, "Wait");
    SMDDP_RETURN_IF_ERROR(Begin("wait"));
    const std::lock_guard<std::mutex> lock(found->mutex);
    if (const std::shared_ptr<Moment> moment = found->recorded) on->Put([moment] { moment->Wait(); });
    return Status::Ok();
  }
  Result<bool> Done(DeviceEvent event) override {
    const std::shared_ptr<Event> found = EventOf(event, "Done");
    SMDDP_RETURN_IF_ERROR(Begin("done"));
    const std::lock_guard<std::mutex> lock(found->mutex);
    return found->recorded == nullptr || found->recorded->has_come();
  }

  Status Copy(void* to, const void* from, size_t bytes, DeviceStream stream) override {
    const std::shared_ptr<Stream> on = StreamOf(info_.index, stream, "Copy");
    const SharedSpan target = Shared(Touch(to, bytes, "Copy")), source = Shared(Touch(from, bytes, "Copy"));
    SMDDP_RETURN_IF_ERROR(Begin("copy"));
    on->Put([=] { std::memmove(target->data(), source->data(), bytes); });
    const bool pageable = target->block() == nullptr || source->block() == nullptr;
    if (bytes == 0 || !pageable || !Read().pageable_waits) return Status::Ok();
    Add("waits_of_host", 1);
    on->Now()->Wait();
    return Status::Ok();
  }

  Status Pack(const FusedView& view, Range range, void* into, DeviceStream stream) override {
    const std::shared_ptr<Stream> on = StreamOf(info_.index, stream, "Pack");
    SMDDP_RETURN_IF_ERROR(Begin("pack"));
    return Launch(*on, PackWork(info_.index, view, range, into));
  }
  Status Unpack(const FusedView& view, Range range, const void* from, DeviceStream stream) override {
    const std::shared_ptr<Stream> on = StreamOf(info_.index, stream, "Unpack");
    SMDDP_RETURN_IF_ERROR(Begin("unpack"));
    return Launch(*on, UnpackWork(info_.index, view, range, from));
  }

 private:
  Status Begin(const char* kind) {
    SMDDP_RETURN_IF_ERROR(Broken(info_.index));
    return Call(kind);
  }
  static Status Launch(Stream& on, Result<Work> work) {
    if (work.ok()) on.Put(std::move(*work));
    return work.status();
  }

  DeviceInfo info_;
};

class FakePlugin final : public DevicePlugin {
 public:
  explicit FakePlugin(std::string nccl) : nccl_(std::move(nccl)) {}
  std::string platform() const override { return "fake"; }
  Result<int> Count() override {
    SMDDP_RETURN_IF_ERROR(Call("count"));
    return Read().devices;
  }
  Result<Device*> Open(int index) override {
    SMDDP_RETURN_IF_ERROR(Call("open"));
    if (index < 0 || index >= Read().devices) {
      return Status(Reason::kBadArgument, "fake GPU: there is no device " + std::to_string(index) + ".");
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    std::unique_ptr<Device>& device = devices_[index];
    if (device == nullptr) device = std::make_unique<FakeDevice>(index);
    return device.get();
  }
  Result<int> DeviceOf(const void* memory) override {
    const std::shared_ptr<Block> block = BlockOf(memory);
    return block == nullptr || block->kind == Kind::kPinned ? -1 : block->device;
  }
  Result<DeviceGroupLibrary*> Groups() override {
    SMDDP_RETURN_IF_ERROR(Call("groups"));
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!groups_.has_value()) groups_ = LoadGroups(nccl_);
    return *groups_;
  }

 private:
  const std::string nccl_;
  std::mutex mutex_;
  std::map<int, std::unique_ptr<Device>> devices_;
  std::optional<Result<DeviceGroupLibrary*>> groups_;
};

}  // namespace
}  // namespace smddp::fake

extern "C" __attribute__((visibility("default"))) smddp::DevicePlugin* smddp_make_device_plugin(int version,
                                                                                                const char* nccl) {
  static smddp::fake::FakePlugin* const plugin = new smddp::fake::FakePlugin(nccl != nullptr ? nccl : "");
  return version == smddp::kDevicePluginVersion ? plugin : nullptr;
}
