// How a sleeping engine thread is woken: a futex word that may lie in shared memory, so that other processes of the
// node can ring it too. Linux only.
#pragma once

#include <atomic>
#include <cstdint>

namespace smddp {

// Lives in shared memory: plain atomics, all zero is the initial state.
struct Doorbell {
  std::atomic<uint32_t> rings{0};
  std::atomic<uint32_t> sleeping{0};

  // Threads and processes: any. Costs a system call only when the owner sleeps.
  void Ring();
  // The owner reads `rings` BEFORE it looks for work the last time, and passes that here: a ring in between makes
  // Sleep return at once, so none is lost. Returns after a ring or after `microseconds`.
  void Sleep(uint32_t seen, int64_t microseconds);
};

}  // namespace smddp
