// How long training steps reduced gradients, and for how long of that the program had nothing else to do.
//
// Threads: Arrived and Ended the engine's, the counters any.
#pragma once

#include <atomic>
#include <cstdint>

namespace smddp {

class StepTimes {
 public:
  void Arrived(int64_t now_ns) {
    if (!under_way_) first_ns_ = now_ns;
    under_way_ = true;
    last_ns_ = now_ns;
  }
  // No gradient is under way any more. `complete`: the step has all its gradients, so the program waits for them since
  // the last one arrived; otherwise it is computing the next one.
  void Ended(bool complete, int64_t now_ns) {
    if (!under_way_) return;
    under_way_ = false;
    reducing_ns_.fetch_add(now_ns - first_ns_, std::memory_order_relaxed);
    if (!complete) return;
    exposed_ns_.fetch_add(now_ns - last_ns_, std::memory_order_relaxed);
    steps_.fetch_add(1, std::memory_order_relaxed);
  }

  int64_t steps() const { return steps_.load(std::memory_order_relaxed); }
  int64_t reducing_ns() const { return reducing_ns_.load(std::memory_order_relaxed); }
  int64_t exposed_ns() const { return exposed_ns_.load(std::memory_order_relaxed); }

 private:
  bool under_way_ = false;
  int64_t first_ns_ = 0, last_ns_ = 0;
  std::atomic<int64_t> steps_{0}, reducing_ns_{0}, exposed_ns_{0};
};

}  // namespace smddp
