// Wakes a sleeping engine thread: a futex word that may be in shared memory, so that other processes of the node can
// ring it too. Linux only.
#pragma once

#include <atomic>
#include <cstdint>

namespace smddp {

// Placed in shared memory: plain atomics; all zero is the initial state.
struct Doorbell {
  std::atomic<uint32_t> rings{0};
  std::atomic<uint32_t> sleeping{0};

  // Threads and processes: any. Costs a system call only when the owner sleeps.
  void Ring();
  // The owner reads `rings` BEFORE it looks for work the last time, and passes the value here: if the bell was rung
  // in between, Sleep returns at once, so no ring is lost. Returns after a ring or after `microseconds`.
  void Sleep(uint32_t seen, int64_t microseconds);
};

}  // namespace smddp
