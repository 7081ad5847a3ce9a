// A queue with many producer threads and one consumer.
#pragma once

#include <mutex>
#include <utility>
#include <vector>

#include "core/sync/test_delay.h"

namespace smddp {

// Threads: Push from any, TakeAll from the one consumer. Push after Close returns false and does not move from the
//          item.
template <class T>
class InboxQueue {
 public:
  bool Push(T&& item) {
    InjectTestDelay();
    std::lock_guard<std::mutex> lock(mutex_);
    if (closed_) return false;
    items_.push_back(std::move(item));
    return true;
  }
  // Appends the queued items to `into`, in order; true when there were any.
  bool TakeAll(std::vector<T>* into) {
    InjectTestDelay();
    std::lock_guard<std::mutex> lock(mutex_);
    if (items_.empty()) return false;
    for (T& item : items_) into->push_back(std::move(item));
    items_.clear();
    return true;
  }
  void Close() {
    InjectTestDelay();
    std::lock_guard<std::mutex> lock(mutex_);
    closed_ = true;
  }

 private:
  std::mutex mutex_;
  std::vector<T> items_;
  bool closed_ = false;
};

}  // namespace smddp
