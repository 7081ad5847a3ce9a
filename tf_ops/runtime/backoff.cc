#include "runtime/backoff.h"

#include <sched.h>

#include <algorithm>

namespace smddp {
namespace {

constexpr int64_t kFirstSleepUs = 50;

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

Backoff::Backoff(Doorbell& doorbell, bool crowded, bool polled)
    : doorbell_(doorbell),
      spins_(crowded ? 20 : 2000),
      yields_(crowded ? 100 : 50),
      longest_expecting_us_(polled ? 500 : 5000),
      longest_idle_us_(polled ? 5000 : 100000) {}

void Backoff::Wait(uint32_t seen, bool expecting) {
  if (!expecting) {
    doorbell_.Sleep(seen, longest_idle_us_);
    return;
  }
  const int round = idle_rounds_++;
  if (round < spins_) return Pause();
  if (round < spins_ + yields_) {
    sched_yield();
    return;
  }
  const int doublings = std::min(round - spins_ - yields_, 10);
  doorbell_.Sleep(seen, std::min(kFirstSleepUs << doublings, longest_expecting_us_));
}

}  // namespace smddp
