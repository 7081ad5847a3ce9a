// Time and deadlines. Every wait takes a Deadline.
#pragma once

#include <chrono>
#include <cstdint>

namespace smddp {

// CLOCK_MONOTONIC, in nanoseconds: comparable between the processes of one machine.
inline int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// CLOCK_REALTIME, in nanoseconds: comparable between machines as far as their clocks agree.
inline int64_t EpochNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

class Deadline {
 public:
  static Deadline After(double seconds) { return Deadline(NowNs() + static_cast<int64_t>(seconds * 1e9)); }

  bool passed() const { return NowNs() >= at_ns_; }
  std::chrono::nanoseconds left() const { return std::chrono::nanoseconds(at_ns_ - NowNs()); }

 private:
  explicit Deadline(int64_t at_ns) : at_ns_(at_ns) {}
  int64_t at_ns_;
};

}  // namespace smddp
