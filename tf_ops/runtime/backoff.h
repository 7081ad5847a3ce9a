// How the engine thread waits: it spins briefly while messages are on their way, then yields, then sleeps on its
// doorbell, longer and longer. Idle it only sleeps.
#pragma once

#include <cstdint>

#include "core/doorbell.h"

namespace smddp {

// How many cores the ranks of a node have. Who spins on a core that another rank needs keeps it from answering; a
// yield lets it run at once and costs less than falling asleep and being woken (measured: docs/decisions/0006).
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

  void Reset() { idle_rounds_ = 0; }
  // Nothing moved in the last round. `seen` is the doorbell's count from before that round; `expecting`: something is
  // under way. Returns after a while, at once when the bell was rung since.
  void Wait(uint32_t seen, bool expecting);

 private:
  Doorbell& doorbell_;
  const int spins_, yields_;
  const int64_t longest_expecting_us_, longest_idle_us_;
  int idle_rounds_ = 0;
};

}  // namespace smddp
