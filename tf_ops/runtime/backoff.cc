#include "runtime/backoff.h"

#include <sched.h>

#include <algorithm>

namespace smddp {
namespace {

constexpr int64_t kFirstSleepUs = 50;

struct Rounds {
  int spins, yields;
};
constexpr Rounds kRounds[] = {{2000, 50}, {20, 100}, {5, 1000}};  // by Cores

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

Cores CoresFor(int local_size, int cores) {
  if (cores < local_size) return Cores::kCrowded;
  return cores < 2 * local_size ? Cores::kShared : Cores::kPlenty;
}

Backoff::Backoff(Doorbell& doorbell, Cores cores, bool polled)
    : doorbell_(doorbell),
      spins_(kRounds[static_cast<int>(cores)].spins),
      yields_(kRounds[static_cast<int>(cores)].yields),
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
