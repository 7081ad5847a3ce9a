// tf_ops/device in host memory. See settings.h for what can be set.
#include <unistd.h>

#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "calls.h"
#include "device/plugin.h"
#include "groups.h"
#include "kernels.h"
#include "memory.h"
#include "settings.h"
#include "stream.h"

namespace smddp::fake {
namespace {

thread_local int current = -1;  // as good as none: who joins a group must have chosen one

class FakeDevice final : public Device {
 public:
  explicit FakeDevice(int index) {
    const Settings settings = Read();
    info_.index = index;
    info_.name = "Fake GPU";
    const std::string own = "-of-" + std::to_string(getpid());
    info_.uuid = "GPU-fake-" + std::to_string(index) + (settings.shared ? "" : own);
    info_.bus_id = "FAKE:" + std::to_string(index) + ":00.0" + (settings.shared || settings.slices ? "" : own);
    info_.processors = 4;
  }
  const DeviceInfo& info() const override { return info_; }
  void RunCurrent(const std::function<void()>& call) const override {
    const int before = current;
    current = info_.index;
    call();
    current = before;
  }

  Result<void*> Allocate(size_t bytes) override { return NewMemory(info_.index, bytes); }
  void Free(void* memory) override { FreeMemory(info_.index, memory); }
  Result<void*> AllocatePinned(size_t bytes) override { return NewPinned(info_.index, bytes); }
  void FreePinned(void* memory) override { fake::FreePinned(info_.index, memory); }

  Result<DeviceStream> MakeStream() override { return NewStream(info_.index); }
  void DestroyStream(DeviceStream stream) override { fake::DestroyStream(info_.index, stream); }
  Result<DeviceEvent> MakeEvent() override { return NewEvent(info_.index); }
  void DestroyEvent(DeviceEvent event) override { fake::DestroyEvent(info_.index, event); }
  Status Record(DeviceEvent event, DeviceStream stream) override { return fake::Record(info_.index, event, stream); }
  Status Wait(DeviceStream stream, DeviceEvent event) override { return fake::Wait(info_.index, stream, event); }
  Result<bool> Done(DeviceEvent event) override { return fake::Done(info_.index, event); }

  Status Copy(void* to, const void* from, size_t bytes, DeviceStream stream) override {
    return fake::Copy(info_.index, to, from, bytes, stream);
  }

  Status Pack(const FusedView& view, Range range, void* into, DeviceStream stream) override {
    const std::shared_ptr<Stream> on = StreamOf(info_.index, stream, "Pack");
    SMDDP_RETURN_IF_ERROR(Begin(info_.index, "pack"));
    return Launch(*on, PackWork(info_.index, view, range, into));
  }
  Status Unpack(const FusedView& view, Range range, const void* from, DeviceStream stream) override {
    const std::shared_ptr<Stream> on = StreamOf(info_.index, stream, "Unpack");
    SMDDP_RETURN_IF_ERROR(Begin(info_.index, "unpack"));
    return Launch(*on, UnpackWork(info_.index, view, range, from));
  }

 private:
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
    SMDDP_RETURN_IF_ERROR(Call("device_of"));
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

int CurrentDevice() { return current; }

}  // namespace smddp::fake

extern "C" __attribute__((visibility("default"))) smddp::DevicePlugin* smddp_make_device_plugin(int version,
                                                                                                const char* nccl) {
  static smddp::fake::FakePlugin* const plugin = new smddp::fake::FakePlugin(nccl != nullptr ? nccl : "");
  return version == smddp::kDevicePluginVersion ? plugin : nullptr;
}
