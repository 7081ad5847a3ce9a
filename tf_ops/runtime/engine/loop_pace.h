// Records when something last moved, and decides how the engine waits until it does again.
//
// Threads: the engine's; the counters may be read by any.
#pragma once

#include <atomic>
#include <cstdint>

#include "core/clock.h"
#include "runtime/engine/backoff.h"

namespace smddp {

class LoopPace {
 public:
  explicit LoopPace(Backoff backoff) : backoff_(backoff) {}

  void BeginRound() { rounds_.fetch_add(1, std::memory_order_relaxed); }
  // The result of the round. `moved`: data or requests; `worked`: the same without messages that engines also send
  // while no operation makes progress (control/messages.h BelongsToWork); `heard`: any message.
  void EndRound(bool moved, bool worked, bool heard, int64_t now_ns) {
    if (moved) last_moved_ns_ = now_ns;
    if (worked) last_worked_ns_ = now_ns;
    if (!moved && !heard) return;
    idle_rounds_ = 0;
    backoff_.Reset();
  }
  // Nothing has moved. Should slots that others wait for be evacuated (copied to private memory)?
  bool MayEvacuate(bool expecting, int64_t now_ns) {
    return !expecting || ++idle_rounds_ % kEvacuateAfterRounds == 0 || now_ns - last_moved_ns_ > kEvacuateAfterNs;
  }
  void Evacuated() { backoff_.Reset(); }
  // As Backoff::Wait.
  void Wait(uint32_t seen, bool expecting, bool soundless, int64_t now_ns) {
    wakeups_.fetch_add(1, std::memory_order_relaxed);
    backoff_.Wait(seen, expecting, now_ns - last_moved_ns_, soundless);
  }
  // Sleeps as if nothing had moved for a long time.
  void WaitLong(uint32_t seen) { backoff_.Wait(seen, /*expecting=*/false, kLongIdleNs); }

  // Five times a second; the components' ticks.
  bool TickDue(int64_t now_ns) { return Due(&last_tick_ns_, kTickEveryNs, now_ns); }
  // At short intervals while a request waits: a death must be detected before the launcher ends the survivors.
  bool LookDue(int64_t now_ns) { return Due(&last_look_ns_, kLookEveryNs, now_ns); }

  int64_t last_moved_ns() const { return last_moved_ns_; }
  int64_t last_worked_ns() const { return last_worked_ns_; }
  int64_t rounds() const { return rounds_.load(std::memory_order_relaxed); }
  int64_t wakeups() const { return wakeups_.load(std::memory_order_relaxed); }

 private:
  static constexpr int64_t kTickEveryNs = 200 * 1000000LL;
  static constexpr int64_t kLookEveryNs = 5 * 1000000LL;
  static constexpr int64_t kLongIdleNs = 200 * 1000000LL;
  static constexpr int kEvacuateAfterRounds = 64;
  static constexpr int64_t kEvacuateAfterNs = 1000000;  // a round takes long where there are few cores

  static bool Due(int64_t* last_ns, int64_t every_ns, int64_t now_ns) {
    if (now_ns - *last_ns <= every_ns) return false;
    *last_ns = now_ns;
    return true;
  }

  Backoff backoff_;
  int idle_rounds_ = 0;
  int64_t last_moved_ns_ = 0, last_worked_ns_ = 0, last_tick_ns_ = 0, last_look_ns_ = 0;
  std::atomic<int64_t> rounds_{0}, wakeups_{0};
};

}  // namespace smddp
