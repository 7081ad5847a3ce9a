// How the engine thread waits: it spins briefly while messages are expected, then yields, then sleeps on its
// doorbell, for increasing times.
//
// The thread keeps yielding for a moment even when nothing is under way: waking an idle core takes 50 us and more, as
// long as a small operation. Other threads get the core at the next yield.
#pragma once

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

class Backoff {
 public:
  // `polled`: some peer cannot ring the doorbell (another host), so sleeps stay short.
  Backoff(Doorbell& doorbell, Cores cores, bool polled);

  void Reset() { rounds_ = sleeps_ = 0; }
  // Nothing has moved for `idle_ns`. `seen` is the doorbell's count from before the last check for work. `expecting`:
  // something is under way. `soundless`: the next event does not ring the doorbell (a GPU's work), so every sleep is
  // short. Returns after a while, or at once when the bell was rung since `seen`.
  void Wait(uint32_t seen, bool expecting, int64_t idle_ns, bool soundless = false);

 private:
  Doorbell& doorbell_;
  const int spins_;
  const int64_t longest_expecting_us_, longest_idle_us_;
  int rounds_ = 0, sleeps_ = 0;  // since something moved
};

}  // namespace smddp
