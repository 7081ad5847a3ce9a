// The engine's event log: what happened when. It has three readers: tests and benchmarks, which take all of it at the
// end; the timeline, which takes events while they are written; and the text log at level trace. Off when there is no
// reader.
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

  void Start() {
    std::lock_guard<std::mutex> lock(mutex_);
    events_.clear();
    readers_ |= kEvents;
  }
  std::vector<TraceEvent> Stop() {
    std::lock_guard<std::mutex> lock(mutex_);
    readers_ &= ~kEvents;
    return std::move(events_);
  }

  // Events from now on are kept for TakeStream; those that do not fit are counted and dropped.
  void StartStream() {
    std::lock_guard<std::mutex> lock(mutex_);
    stream_.clear();
    dropped_ = 0;
    readers_ |= kStream;
  }
  void StopStream() {
    std::lock_guard<std::mutex> lock(mutex_);
    readers_ &= ~kStream;
  }
  // Returns how many events were dropped since the last call.
  int64_t TakeStream(std::vector<TraceEvent>* events) {
    events->clear();
    std::lock_guard<std::mutex> lock(mutex_);
    events->swap(stream_);
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
    if ((readers_ & kEvents) != 0) events_.push_back({what, name, index, time_ns, detail});
    if ((readers_ & kStream) == 0) return;
    if (stream_.size() < kMaxInStream) {
      stream_.push_back({what, name, index, time_ns, detail});
    } else {
      ++dropped_;
    }
  }

 private:
  enum : int { kEvents = 1, kStream = 2, kText = 4 };
  static constexpr size_t kMaxInStream = 1 << 18;
  inline static const std::string kNone;

  std::atomic<int> readers_{Logs(LogLevel::kTrace) ? kText : 0};  // written under the mutex
  std::mutex mutex_;
  std::vector<TraceEvent> events_, stream_;
  int64_t dropped_ = 0;
};

}  // namespace smddp
