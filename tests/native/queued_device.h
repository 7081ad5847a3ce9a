// A GPU in host memory whose streams hold their work until the test lets them run: the stream that was made last first,
// each as far as its waits allow. So work that nothing orders runs in the wrong order.
#pragma once

#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "device/group.h"
#include "device/work.h"
#include "native/testing.h"

namespace smddp {

class QueuedDevice : public Device {
 public:
  explicit QueuedDevice(int index = 0) {
    info_.index = index;
    info_.name = "Queued";
    info_.uuid = "GPU-" + std::to_string(index);
  }
  ~QueuedDevice() override {
    CHECK(memory.empty());
    CHECK(events_.empty());
    CHECK(streams_.empty());
  }
  const DeviceInfo& info() const override { return info_; }
  Result<void*> Allocate(size_t bytes) override { return *memory.insert(std::malloc(bytes)).first; }
  void Free(void* block) override {
    CHECK(memory.erase(block) == 1);
    std::free(block);
  }
  Result<void*> AllocatePinned(size_t bytes) override { return Allocate(bytes); }
  void FreePinned(void* block) override { Free(block); }
  Result<DeviceStream> MakeStream() override {
    streams_.push_front(std::make_unique<Stream>());
    return DeviceStream(streams_.front().get());
  }
  void DestroyStream(DeviceStream stream) override {
    Run();
    streams_.remove_if([stream](const auto& each) { return each.get() == stream; });
  }
  Result<DeviceEvent> MakeEvent() override {
    events_.push_back(std::make_unique<Event>());
    return DeviceEvent(events_.back().get());
  }
  void DestroyEvent(DeviceEvent event) override {
    Run();
    events_.remove_if([event](const auto& each) { return each.get() == event; });
  }
  Status Record(DeviceEvent handle, DeviceStream stream) override {
    auto* const event = static_cast<Event*>(handle);
    return Put(stream, [event, number = ++event->recorded] {
      event->passed.insert(number);
      return true;
    });
  }
  Status Wait(DeviceStream stream, DeviceEvent handle) override {
    auto* const event = static_cast<Event*>(handle);
    return Put(stream, [event, number = event->recorded] { return number == 0 || event->passed.count(number) > 0; });
  }
  Result<bool> Done(DeviceEvent handle) override {
    SMDDP_RETURN_IF_ERROR(broken);
    if (!late) Run();
    const auto* const event = static_cast<Event*>(handle);
    return event->recorded == 0 || event->passed.count(event->recorded) > 0;
  }
  Status Copy(void* to, const void* from, size_t bytes, DeviceStream stream) override {
    copied.push_back(bytes);
    return Put(stream, [=] {
      std::memcpy(to, from, bytes);
      return true;
    });
  }
  Status Pack(const FusedView& view, Range range, void* into, DeviceStream stream) override {
    return Put(stream, [view, range, into] {
      view.Pack(range, into);
      return true;
    });
  }
  Status Unpack(const FusedView& view, Range range, const void* from, DeviceStream stream) override {
    return Put(stream, [view, range, from] {
      view.Unpack(range, from);
      return true;
    });
  }

  // `work` returns false while it cannot run.
  Status Put(DeviceStream stream, std::function<bool()> work) {
    SMDDP_RETURN_IF_ERROR(broken);
    static_cast<Stream*>(stream)->push_back(std::move(work));
    return Status::Ok();
  }
  // Lets the streams run until none can go on.
  void Run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (auto& stream : streams_) {
        for (; !stream->empty() && stream->front()(); moved = true) stream->pop_front();
      }
    }
  }

  bool late = false;           // the work runs in Run only; else also when somebody looks whether it has
  Status broken;               // of every call from now on
  std::vector<size_t> copied;  // bytes of each copy so far
  std::set<void*> memory;      // not given back

 private:
  using Stream = std::deque<std::function<bool()>>;
  struct Event {
    int recorded = 0;      // how often
    std::set<int> passed;  // of these
  };
  DeviceInfo info_;
  std::list<std::unique_ptr<Stream>> streams_;
  std::list<std::unique_ptr<Event>> events_;
};

// A stream of the framework's on `device`, and the order of a tensor with it.
class Framework {
 public:
  explicit Framework(QueuedDevice& device) : device_(device), stream_(Value(device.MakeStream())) {}
  ~Framework() { device_.DestroyStream(stream_); }
  DeviceStream stream() const { return stream_; }
  std::shared_ptr<const DeviceWork> Begin() { return Value(DeviceWork::Begin(device_, stream_)); }
  // Work of its own.
  template <class Work>
  void Put(Work work) {
    CHECK(device_
              .Put(stream_,
                   [work] {
                     work();
                     return true;
                   })
              .ok());
  }

 private:
  QueuedDevice& device_;
  const DeviceStream stream_;
};

// Collectives of float32 among members whose streams are on one QueuedDevice.
class QueuedGroups : public DeviceGroupLibrary {
 public:
  explicit QueuedGroups(QueuedDevice& device) : device_(device) {}
  int version() const override { return 22703; }
  Result<std::string> MakeId() override { return std::string("id"); }
  Result<std::unique_ptr<DeviceGroup>> Join(const std::string& id, int size, int member, Device&) override {
    if (id != "id") return Status(Reason::kInternal, "another id");
    size_ = size;
    return std::unique_ptr<DeviceGroup>(std::make_unique<Member>(*this, member));
  }

  Status health;              // of all members
  bool ready = true;          // of all members
  int aborted = 0, gone = 0;  // members

 private:
  struct Call {
    std::vector<std::pair<float*, const float*>> of_member;  // into, from; null: not there yet
    int there = 0;
    bool done = false;
  };
  class Member : public DeviceGroup {
   public:
    Member(QueuedGroups& home, int member) : home_(home), member_(member) {}
    ~Member() override { ++home_.gone; }
    Result<bool> Ready() override { return home_.ready; }
    Status Health() override { return home_.health; }
    Status ReduceScatter(void* into, const void* from, int64_t each, DType, DeviceStream stream) override {
      return home_.Put(member_, calls_++, into, from, stream, [each](Call* call) {
        for (size_t m = 0; m < call->of_member.size(); ++m) {
          for (int64_t i = 0; i < each; ++i) {
            float sum = 0;
            for (const auto& [unused, theirs] : call->of_member) sum += theirs[static_cast<int64_t>(m) * each + i];
            call->of_member[m].first[i] = sum;
          }
        }
      });
    }
    Status Allgather(void* into, const void* from, int64_t each, DType, DeviceStream stream) override {
      return home_.Put(member_, calls_++, into, from, stream, [each](Call* call) {
        for (const auto& [to, unused] : call->of_member) {
          for (size_t m = 0; m < call->of_member.size(); ++m) {
            std::memmove(to + static_cast<int64_t>(m) * each, call->of_member[m].second, each * sizeof(float));
          }
        }
      });
    }
    void Abort() override { ++home_.aborted; }

   private:
    QueuedGroups& home_;
    const int member_;
    int calls_ = 0;
  };

  // The work of a call runs when the streams of all members have come to it.
  Status Put(int member, size_t number, void* into, const void* from, DeviceStream stream,
             std::function<void(Call*)> work) {
    while (calls_.size() <= number) calls_.push_back(std::make_unique<Call>());
    Call* const call = calls_[number].get();
    call->of_member.resize(size_);
    return device_.Put(stream, [this, call, member, into, from, work = std::move(work)] {
      auto& mine = call->of_member[member];
      if (mine.first == nullptr) {
        mine = {static_cast<float*>(into), static_cast<const float*>(from)};
        if (++call->there == size_) {
          work(call);
          call->done = true;
        }
      }
      return call->done;
    });
  }

  QueuedDevice& device_;
  int size_ = 0;
  std::vector<std::unique_ptr<Call>> calls_;
};

}  // namespace smddp
