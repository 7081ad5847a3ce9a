// Named allreduces that all ranks have announced to this coordinator, until their verdicts are sent. A few travel at a
// time; those that become complete meanwhile leave together, in one message and one reduction. There is no cycle: a
// request waits only while others travel.
//
// Sums do not depend on what is reduced together, which varies from run to run: only requests whose algorithm adds in
// the same order at every position are put together (requests/named_request.h MayBeFused).
//
// Threads: the engine's.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>

#include "runtime/control/messages.h"

namespace smddp {

class FusionQueue {
 public:
  // `most_bytes` are reduced together; 0: each request by itself.
  explicit FusionQueue(int64_t most_bytes) : most_bytes_(most_bytes) {}

  // Does the verdict start a reduction of all ranks, so that it may wait here?
  static bool Takes(const Verdict& verdict);
  void Add(Verdict verdict) { waiting_.push_back(std::move(verdict)); }
  // The next one to send, in the order in which they became complete; `Verdict::fused` are those that go with it. None
  // while enough are under way.
  std::optional<Verdict> Next();
  // The one of that name, by itself and at once: another verdict on the name follows.
  std::optional<Verdict> Take(const std::string& name);
  // One that Next or Take has returned has ended on this rank.
  void Ended() { --travelling_; }
  void Clear() { waiting_.clear(); }

 private:
  // It is sent.
  Verdict Remove(std::deque<Verdict>::iterator at);

  const int64_t most_bytes_;
  std::deque<Verdict> waiting_;
  int travelling_ = 0;
};

}  // namespace smddp
