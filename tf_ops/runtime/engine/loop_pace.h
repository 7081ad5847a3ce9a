// Records when something last moved, and decides how the engine thread waits until it does again: it spins briefly
// while messages are expected, then yields, then sleeps on its doorbell, for increasing times.
//
// The thread keeps yielding for a moment even when nothing is under way: waking an idle core takes 50 us and more, as
// long as a small operation. Other threads get the core at the next yield.
//
// Threads: the engine's; the counters may be read by any.
#pragma once

#include <atomic>
#include <cstdint>

#include "core/sync/doorbell.h"

namespace smddp {

// How many cores the ranks of a node have. Spinning on a core that another rank needs delays that rank's answer; a
// yield lets it run at once and costs less than sleeping and being woken (measured: docs/decisions/0006).
enum class Cores {
  kPlenty,   // two or more for each rank
  kShared,   // at least one: the engine thread shares it with its caller
  kCrowded,  // more ranks than cores
};
Cores CoresFor(int local_size, int cores);

class LoopPace {
 public:
  // `polled`: some peer cannot ring the doorbell (another host), so sleeps stay short.
  LoopPace(Doorbell& doorbell, Cores cores, bool polled);

  void BeginRound() { rounds_.fetch_add(1, std::memory_order_relaxed); }
  // The result of the round. `moved`: data or requests; `worked`: the same without messages that engines also send
  // while no operation makes progress (control/messages.h BelongsToWork); `heard`: any message.
  void EndRound(bool moved, bool worked, bool heard, int64_t now_ns) {
    if (moved) last_moved_ns_ = now_ns;
    if (worked) last_worked_ns_ = now_ns;
    if (!moved && !heard) return;
    idle_rounds_ = 0;
    Reset();
  }
  // Nothing has moved. Should slots that others wait for be evacuated (copied to private memory)?
  bool MayEvacuate(bool expecting, int64_t now_ns) {
    return !expecting || ++idle_rounds_ % kEvacuateAfterRounds == 0 || now_ns - last_moved_ns_ > kEvacuateAfterNs;
  }
  void Evacuated() { Reset(); }
  // Nothing has moved in the round. `seen` is the doorbell's count from before the last check for work. `expecting`:
  // something is under way. `soundless`: the next event does not ring the doorbell (a GPU's work), so every sleep is
  // short. Returns after a while, or at once when the bell was rung since `seen`.
  void Wait(uint32_t seen, bool expecting, bool soundless, int64_t now_ns);
  // Sleeps as if nothing had moved for a long time.
  void WaitLong(uint32_t seen) { Wait(seen, /*expecting=*/false, /*soundless=*/false, last_moved_ns_ + kLongIdleNs); }

  // Five times a second; the components' ticks.
  bool TickDue(int64_t now_ns) { return Due(&last_tick_ns_, kTickEveryNs, now_ns); }
  // At short intervals while a request waits: a death must be detected before the launcher ends the survivors.
  bool LookDue(int64_t now_ns) { return Due(&last_look_ns_, kLookEveryNs, now_ns); }

  int64_t last_moved_ns() const { return last_moved_ns_; }
  int64_t last_worked_ns() const { return last_worked_ns_; }
  int64_t rounds() const { return rounds_.load(std::memory_order_relaxed); }

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
  void Reset() { spun_ = sleeps_ = 0; }

  Doorbell& doorbell_;
  const int spins_;
  const int64_t longest_expecting_us_, longest_idle_us_;
  int spun_ = 0, sleeps_ = 0;  // since something moved
  int idle_rounds_ = 0;
  int64_t last_moved_ns_ = 0, last_worked_ns_ = 0, last_tick_ns_ = 0, last_look_ns_ = 0;
  int64_t crowded_until_ns_ = 0;
  std::atomic<int64_t> rounds_{0};
};

}  // namespace smddp
