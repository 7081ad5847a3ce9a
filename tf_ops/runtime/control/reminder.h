// When the stall watch warns of a wait: after the configured time, and then each time the wait has doubled, so that a
// wait of days gives about a dozen warnings.
#pragma once

#include <algorithm>
#include <cstdint>

namespace smddp {

class Reminder {
 public:
  bool Due(int64_t since_ns, int64_t now_ns, double seconds) const {
    return now_ns - since_ns >= std::max(static_cast<int64_t>(seconds * 1e9), next_ns_);
  }
  bool taken() const { return next_ns_ != 0; }
  // True when a warning is due; the next one is due when the wait has doubled.
  bool Take(int64_t since_ns, int64_t now_ns, double seconds) {
    if (!Due(since_ns, now_ns, seconds)) return false;
    next_ns_ = std::max({int64_t{1}, next_ns_, static_cast<int64_t>(seconds * 1e9)});
    while (next_ns_ <= now_ns - since_ns) next_ns_ *= 2;
    return true;
  }

 private:
  int64_t next_ns_ = 0;  // 0: no warning yet
};

}  // namespace smddp
