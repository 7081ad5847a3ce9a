#include "runtime/engine/loop_pace.h"

#include <sched.h>

#include <algorithm>

namespace smddp {
namespace {

constexpr int64_t kFirstSleepUs = 50;
constexpr int kMaxDoublings = 10;
constexpr int kSpins[] = {2000, 20, 5};  // by Cores
constexpr int64_t kYieldExpectingNs = 300 * 1000, kYieldIdleNs = 100 * 1000;

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

LoopPace::LoopPace(Doorbell& doorbell, Cores cores, bool polled)
    : doorbell_(doorbell),
      spins_(kSpins[static_cast<int>(cores)]),
      longest_expecting_us_(polled ? 500 : 5000),
      longest_idle_us_(polled ? 5000 : 100000) {}

LoopPace::Rest LoopPace::Choose(uint32_t seen, bool expecting, bool soundless, int64_t now_ns) {
  wakeups_.fetch_add(1, std::memory_order_relaxed);
  if (expecting && spun_++ < spins_) return {Rest::How::kSpin, soundless};
  if (now_ns - last_moved_ns_ < (expecting ? kYieldExpectingNs : kYieldIdleNs)) return {Rest::How::kYield, soundless};
  if (!expecting) return Long(seen);
  if (soundless) return {Rest::How::kSleep, soundless, seen, kFirstSleepUs};
  const int64_t us = std::min(kFirstSleepUs << sleeps_, longest_expecting_us_);
  sleeps_ = std::min(sleeps_ + 1, kMaxDoublings);
  return {Rest::How::kSleep, soundless, seen, us};
}

void LoopPace::Take(const Rest& rest) {
  if (rest.how == Rest::How::kSpin) Pause();
  if (rest.how == Rest::How::kYield) sched_yield();
  if (rest.how == Rest::How::kSleep) doorbell_.Sleep(rest.seen, rest.us);
}

}  // namespace smddp
