// The engine's event log: what happened when. Its readers are the text log at level trace and one at a time of these:
// the timeline, which takes events while they are written, and tests, which take all of them at the end. Off when there
// is no reader.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/process/log.h"
#include "runtime/api/session.h"

namespace smddp {

// Threads: any. Costs one relaxed load when off.
class Trace {
 public:
  bool on() const { return readers_.load(std::memory_order_relaxed) != 0; }

  // Events from now on are kept for Take; those that do not fit are counted and dropped.
  void Start() {
    std::lock_guard<std::mutex> lock(mutex_);
    events_.clear();
    dropped_ = 0;
    readers_ |= kEvents;
  }
  void Stop() {
    std::lock_guard<std::mutex> lock(mutex_);
    readers_ &= ~kEvents;
  }
  // Returns how many events were dropped since the last call.
  int64_t Take(std::vector<TraceEvent>* events) {
    events->clear();
    std::lock_guard<std::mutex> lock(mutex_);
    events->swap(events_);
    return std::exchange(dropped_, 0);
  }

  void Record(TraceWhat what, const std::string& name, int index, const std::string& detail = kNone) {
    if (on()) RecordAt(NowNs(), what, name, index, detail);
  }
  void RecordAt(int64_t time_ns, TraceWhat what, const std::string& name, int index, const std::string& detail) {
    std::lock_guard<std::mutex> lock(mutex_);
    if ((readers_ & kText) != 0) {
      Log(LogLevel::kTrace, NameOf(what), " '", name, "' ", index, detail.empty() ? "" : " " + detail);
    }
    if ((readers_ & kEvents) == 0) return;
    if (events_.size() < kMaxEvents) {
      events_.push_back({what, name, index, time_ns, detail});
    } else {
      ++dropped_;
    }
  }

 private:
  enum : int { kEvents = 1, kText = 2 };
  static constexpr size_t kMaxEvents = 1 << 18;
  inline static const std::string kNone;

  std::atomic<int> readers_{Logs(LogLevel::kTrace) ? kText : 0};  // written under the mutex
  std::mutex mutex_;
  std::vector<TraceEvent> events_;
  int64_t dropped_ = 0;
};

}  // namespace smddp
