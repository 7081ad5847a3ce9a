// Work from many threads for one.
#pragma once

#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "core/sync/test_delay.h"

namespace smddp {

// Threads: RunAll from one at a time, the rest from any. Push after Close returns false and does not move from the
// work.
class WorkQueue {
 public:
  bool Push(std::function<void()>&& work) {
    InjectTestDelay();
    std::lock_guard<std::mutex> lock(mutex_);
    if (closed_) return false;
    waiting_.push_back(std::move(work));
    return true;
  }
  // Runs what was pushed before the call, in order; true when there was something. The work does not call it.
  bool RunAll() {
    InjectTestDelay();
    {
      std::lock_guard<std::mutex> lock(mutex_);
      running_.swap(waiting_);
    }
    if (running_.empty()) return false;
    for (std::function<void()>& work : running_) work();
    running_.clear();
    return true;
  }
  bool empty() {
    std::lock_guard<std::mutex> lock(mutex_);
    return waiting_.empty();
  }
  void Close() {
    InjectTestDelay();
    std::lock_guard<std::mutex> lock(mutex_);
    closed_ = true;
  }

 private:
  std::mutex mutex_;
  std::vector<std::function<void()>> waiting_;
  bool closed_ = false;
  std::vector<std::function<void()>> running_;  // the consumer's
};

}  // namespace smddp
