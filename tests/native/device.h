// A GPU that does nothing but note the calls. (tests/fake_gpu has one that works.)
#pragma once

#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "device/device.h"
#include "native/testing.h"

namespace smddp {

class NotedDevice : public Device {
 public:
  ~NotedDevice() override {
    CHECK(memory.empty());
    CHECK(events.empty());
  }
  const DeviceInfo& info() const override { return info_; }
  void RunCurrent(const std::function<void()>& call) const override { call(); }
  Result<void*> Allocate(size_t bytes) override { return Add("device", bytes); }
  void Free(void* block) override { Remove(block); }
  Result<void*> AllocatePinned(size_t bytes) override { return Add("pinned", bytes); }
  void FreePinned(void* block) override { Remove(block); }
  Result<DeviceStream> MakeStream() override { return DeviceStream(nullptr); }
  void DestroyStream(DeviceStream) override {}
  Result<DeviceEvent> MakeEvent() override {
    DeviceEvent event = std::malloc(1);
    events.insert(event);
    return event;
  }
  void DestroyEvent(DeviceEvent event) override {
    events.erase(event);
    std::free(event);
  }
  Status Record(DeviceEvent, DeviceStream stream) override { return Note("record", stream); }
  Status Wait(DeviceStream stream, DeviceEvent) override { return Note("wait", stream); }
  Result<bool> Done(DeviceEvent) override {
    ++looks;
    return done;
  }
  Status Copy(void*, const void*, size_t, DeviceStream stream) override { return Note("copy", stream); }
  Status Pack(const FusedView&, Range, void*, DeviceStream stream) override { return Note("pack", stream); }
  Status Unpack(const FusedView&, Range, const void*, DeviceStream stream) override { return Note("unpack", stream); }

  std::vector<std::string> calls;
  std::set<void*> memory, events;  // not given back
  int looks = 0;
  bool done = false, full = false;

 private:
  Result<void*> Add(const std::string& what, size_t bytes) {
    if (full) return Status(Reason::kNoResources, "full");
    calls.push_back(what + " " + std::to_string(bytes));
    return *memory.insert(std::malloc(1)).first;
  }
  void Remove(void* block) {
    CHECK(memory.erase(block) == 1);
    std::free(block);
  }
  Status Note(const std::string& what, DeviceStream stream) {
    calls.push_back(what + " " + std::to_string(reinterpret_cast<uintptr_t>(stream)));
    return Status::Ok();
  }

  DeviceInfo info_;
};

inline DeviceStream StreamOf(uintptr_t number) { return reinterpret_cast<DeviceStream>(number); }

}  // namespace smddp
