#include "runtime/engine/loop_pace.h"

#include <sched.h>

#include <algorithm>

#include "core/clock.h"

namespace smddp {
namespace {

constexpr int64_t kFirstSleepUs = 50;
constexpr int kMaxDoublings = 10;
constexpr int kSpins[] = {2000, 20, 5};  // by Cores
constexpr int64_t kYieldExpectingNs = 300 * 1000, kYieldIdleNs = 100 * 1000;
// A yield that took longer let another thread run: for a while there are fewer cores than threads that want them.
constexpr int64_t kYieldAloneNs = 10 * 1000, kCrowdedNs = 20 * 1000000;

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

void LoopPace::Wait(uint32_t seen, bool expecting, bool soundless, int64_t now_ns) {
  const int64_t idle_ns = now_ns - last_moved_ns_;
  const int spins = now_ns < crowded_until_ns_ ? kSpins[static_cast<int>(Cores::kCrowded)] : spins_;
  if (expecting && spun_++ < spins) return Pause();
  if (idle_ns < (expecting ? kYieldExpectingNs : kYieldIdleNs)) {
    const int64_t begun_ns = NowNs();
    sched_yield();
    if (const int64_t back_ns = NowNs(); back_ns - begun_ns > kYieldAloneNs) crowded_until_ns_ = back_ns + kCrowdedNs;
    return;
  }
  if (!expecting) return doorbell_.Sleep(seen, longest_idle_us_);
  if (soundless) return doorbell_.Sleep(seen, kFirstSleepUs);
  doorbell_.Sleep(seen, std::min(kFirstSleepUs << sleeps_, longest_expecting_us_));
  sleeps_ = std::min(sleeps_ + 1, kMaxDoublings);
}

}  // namespace smddp
