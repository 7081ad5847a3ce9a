// A GPU in host memory whose streams hold their work until the test lets them run: the stream that was made last first,
// or the other way round, each as far as its waits allow. So work that nothing orders runs in the wrong order. And a
// library of groups on it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "device/events.h"
#include "device/group.h"
#include "native/testing.h"

namespace smddp {

class QueuedDevice : public Device {
 public:
  explicit QueuedDevice(int index = 0) {
    info_.index = index;
    info_.name = "Queued";
    info_.uuid = "GPU-" + std::to_string(index);
    info_.bus_id = "0000:" + std::to_string(index);
  }
  ~QueuedDevice() override {
    CHECK(memory.empty());
    CHECK(events_.empty());
    CHECK(streams_.empty());
  }
  const DeviceInfo& info() const override { return info_; }
  void RunCurrent(const std::function<void()>& call) const override { call(); }
  Result<void*> Allocate(size_t bytes) override {
    SMDDP_RETURN_IF_ERROR(broken);
    ++allocated;
    return *memory.insert(std::malloc(bytes)).first;
  }
  void Free(void* block) override {
    CHECK(memory.erase(block) == 1);
    std::free(block);
  }
  Result<void*> AllocatePinned(size_t bytes) override { return Allocate(bytes); }
  void FreePinned(void* block) override { Free(block); }
  Result<DeviceStream> MakeStream() override {
    SMDDP_RETURN_IF_ERROR(broken);
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
      if (oldest_first) streams_.reverse();
      for (auto& stream : streams_) {
        for (; !stream->empty() && stream->front()(); moved = true) stream->pop_front();
      }
      if (oldest_first) streams_.reverse();
    }
  }

  bool oldest_first = false;   // of the streams that can run
  bool late = false;           // the work runs in Run only; else also when somebody looks whether it has
  Status broken;               // of every call from now on
  std::vector<size_t> copied;  // bytes of each copy so far
  int allocated = 0;           // how often, so far
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

// Has the GPU passed it? Whatever was answered a moment ago.
inline bool Passed(const PooledEventPtr& event) {
  std::this_thread::sleep_for(std::chrono::microseconds(50));  // longer than an answer is kept
  return Value(event->Passed());
}

// A stream of the framework's on `device`, and the order of a tensor with it.
class Framework {
 public:
  explicit Framework(QueuedDevice& device)
      : device_(device), events_(std::make_unique<EventPool>(device)), stream_(Value(device.MakeStream())) {}
  ~Framework() {
    device_.DestroyStream(stream_);
    events_ = nullptr;
  }
  DeviceStream stream() const { return stream_; }
  PooledEventPtr Mark() { return Value(events_->Mark(stream_)); }
  // Computes `values` where they stand.
  void Compute(float* to, std::vector<float> values) {
    Put([to, values = std::move(values)] { std::copy(values.begin(), values.end(), to); });
  }
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
  std::unique_ptr<EventPool> events_;
  const DeviceStream stream_;
};

// Collectives of float32 among members whose streams are on one QueuedDevice.
class QueuedGroups : public DeviceGroupLibrary {
 public:
  explicit QueuedGroups(QueuedDevice& device) : device_(device) {}
  int version() const override { return 22703; }
  Result<std::string> MakeId() override {
    SMDDP_RETURN_IF_ERROR(no_id);
    return std::string("id");
  }
  Result<std::unique_ptr<DeviceGroup>> Join(const std::string& id, int size, int member, Device&) override {
    if (id != "id") return Status(Reason::kInternal, "another id");
    joined.emplace_back(size, member);
    return std::unique_ptr<DeviceGroup>(std::make_unique<Member>(*this, size, member));
  }

  Status no_id, health, call;                // of all members; an error of `call` stays
  Result<bool> ready = true;                 // likewise
  int aborted = 0, gone = 0, looks = 0;      // members that are; questions about their health
  std::vector<std::pair<int, int>> joined;   // sizes and members
  std::vector<std::vector<GroupCall>> made;  // calls of all members, those of one launch together

 private:
  // The members' parts in one collective.
  struct Meeting {
    std::vector<const GroupCall*> of_member;  // null: not there yet
    int there = 0;
    bool done = false;
  };
  class Member : public DeviceGroup {
   public:
    Member(QueuedGroups& home, int size, int member) : home_(home), size_(size), member_(member) {}
    ~Member() override { ++home_.gone; }
    Result<bool> Ready() override { return home_.ready; }
    Status Health() override {
      ++home_.looks;
      return home_.health;
    }
    Status Call(const std::vector<GroupCall>& calls, DeviceStream stream) override {
      if (!home_.call.ok()) home_.ready = home_.call;
      SMDDP_RETURN_IF_ERROR(home_.call);
      home_.made.push_back(calls);
      for (const GroupCall& call : calls) SMDDP_RETURN_IF_ERROR(home_.Put(size_, member_, calls_++, call, stream));
      return Status::Ok();
    }
    void Abort() override {
      ++home_.aborted;
      home_.is_aborted_ = true;
    }

   private:
    QueuedGroups& home_;
    const int size_, member_;
    int calls_ = 0;
  };

  static void Compute(const std::vector<const GroupCall*>& all) {
    const GroupCall& first = *all[0];
    const auto from = [&](size_t member) { return static_cast<const float*>(all[member]->from); };
    const auto into = [&](size_t member) { return static_cast<float*>(all[member]->into); };
    const bool gathers = first.kind == GroupCall::Kind::kAllgather;
    std::vector<float> whole;
    const int64_t parts = first.kind == GroupCall::Kind::kAllreduce ? 1 : static_cast<int64_t>(all.size());
    for (int64_t i = 0; i < parts * first.each; ++i) {
      float value = gathers ? from(i / first.each)[i % first.each] : 0;
      for (size_t member = 0; !gathers && member < all.size(); ++member) value += from(member)[i];
      whole.push_back(value);
    }
    for (size_t member = 0; member < all.size(); ++member) {
      const bool scatters = first.kind == GroupCall::Kind::kReduceScatter;
      const float* const begin = whole.data() + (scatters ? static_cast<int64_t>(member) * first.each : 0);
      std::copy(begin, begin + (scatters ? first.each : static_cast<int64_t>(whole.size())), into(member));
    }
  }

  // The work of a call runs when the streams of all members have come to it.
  Status Put(int size, int member, size_t number, const GroupCall& call, DeviceStream stream) {
    while (meetings_.size() <= number) meetings_.push_back(std::make_unique<Meeting>());
    Meeting* const meeting = meetings_[number].get();
    meeting->of_member.resize(size);
    auto kept = std::make_shared<GroupCall>(call);
    return device_.Put(stream, [this, meeting, member, kept, size] {
      if (is_aborted_) return true;
      if (meeting->of_member[member] == nullptr) {
        meeting->of_member[member] = kept.get();
        if (++meeting->there == size) Compute(meeting->of_member);
        meeting->done = meeting->there == size;
      }
      return meeting->done;
    });
  }

  QueuedDevice& device_;
  bool is_aborted_ = false;
  std::vector<std::unique_ptr<Meeting>> meetings_;
};

}  // namespace smddp
