// The engine's diary: who did what when. Off unless a test or a benchmark asks for it.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "core/clock.h"
#include "runtime/session.h"

namespace smddp {

// Threads: any. Costs one relaxed load when off.
class Trace {
 public:
  void Start() {
    std::lock_guard<std::mutex> lock(mutex_);
    events_.clear();
    on_ = true;
  }
  std::vector<TraceEvent> Stop() {
    std::lock_guard<std::mutex> lock(mutex_);
    on_ = false;
    return std::move(events_);
  }
  void Record(const char* what, const std::string& name, int index) {
    if (!on_.load(std::memory_order_relaxed)) return;
    std::lock_guard<std::mutex> lock(mutex_);
    events_.push_back({what, name, index, NowNs()});
  }

 private:
  std::atomic<bool> on_{false};
  std::mutex mutex_;
  std::vector<TraceEvent> events_;
};

}  // namespace smddp
