// Which thread runs the rounds of an engine's loop: the engine's own, or, while a caller waits for an answer, the
// caller's (the driver). To wake another thread and be woken by it takes longer than a small request.
//
// While somebody drives, and for a moment afterwards, the engine's thread is parked: it sleeps on a bell of its own
// and not on the node's doorbell. So a peer that rings wakes nobody and makes no system call, unless the driver itself
// sleeps on the doorbell, which it may only while the engine's thread is parked: a doorbell has one sleeper.
//
// Threads: Begin, Wake and the questions from any; End from the driver; AwaitTurn from the engine's.
#pragma once

#include <atomic>
#include <cstdint>

#include "core/sync/doorbell.h"

namespace smddp {

class Driving {
 public:
  // `doorbell`: the node's; outlives it.
  explicit Driving(Doorbell& doorbell) : doorbell_(doorbell) {}

  // Makes the calling thread the driver. False: there is one.
  bool Begin() { return !begun_.exchange(true); }
  // Afterwards the driver looks whether something is left, and calls Wake then.
  void End();
  bool begun() const { return begun_.load(); }
  // There is work. Wakes who sleeps: the driver, or the engine's thread, which does not park itself again before
  // somebody has driven. A system call only where somebody sleeps.
  void Wake();

  // Shall the engine's thread run a round? Parks it for some milliseconds while somebody drives or has just driven.
  bool AwaitTurn();
  // Is it off the doorbell? True until the next AwaitTurn, when read by the engine's thread; while the caller drives,
  // when read by the driver.
  bool parked() const { return parked_.load(); }

 private:
  bool lingers() const;

  Doorbell& doorbell_;
  std::atomic<bool> begun_{false}, parked_{false};
  std::atomic<int64_t> ended_ns_{0};  // when somebody last drove; 0: that does not matter any more
  Doorbell bell_;
};

}  // namespace smddp
