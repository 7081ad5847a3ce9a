// Named requests whose steps fail on this rank.
//
// A request whose step is cancelled before the other ranks have announced theirs is answered at once; the other ranks
// get an error when they do. Otherwise it would be reduced with the data of their next step. A request that a run has
// not made at all is noticed when its graph runs again (ops/kernels/run_begins.cc), and the other ranks get the same
// error. Of plans: plans/given_up_steps.h.
//
// Threads: the engine's.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "runtime/control/component.h"
#include "runtime/control/join_rounds.h"
#include "runtime/named/coordination.h"
#include "runtime/named/named_matching.h"

namespace smddp {

class GivenUpRequests : public Component {
 public:
  // All outlive it.
  GivenUpRequests(ControlBus& bus, const JoinRounds& rounds, const NamedMatching& named, Coordination& coordination)
      : bus_(bus), rounds_(rounds), named_(named), coordination_(coordination) {}

  // The step that holds request `name` was cancelled.
  void Cancel(const std::string& name) { cancelled_.emplace_back(name, NowNs()); }
  // A run begins that brings request `name`. Gives up the request of the previous run if that has not brought it.
  void BeginRun(const std::string& name) {
    if (expected_.insert(name).second || !bus_.failure().ok()) return;
    coordination_.GiveUp({name, /*missing=*/true, rounds_.round()});
  }
  // Call it before a request is submitted.
  void BeforeSubmit(const std::string& name) { expected_.erase(name); }
  // Gives up all requests that runs have not brought: no other run follows.
  void GiveUpExpected() {
    for (const std::string& name : std::exchange(expected_, {})) {
      coordination_.GiveUp({name, /*missing=*/true, rounds_.round()});
    }
  }

  void Tick(int64_t now_ns) override {
    while (!cancelled_.empty() && now_ns - cancelled_.front().second >= kSettleNs) {
      const auto [name, when_ns] = std::move(cancelled_.front());
      cancelled_.erase(cancelled_.begin());
      const NamedRequest* const waits = named_.Waiting(name);
      if (waits != nullptr && waits->submitted_ns <= when_ns) coordination_.GiveUp({name});  // or it is of a later step
    }
  }

 private:
  ControlBus& bus_;
  const JoinRounds& rounds_;
  const NamedMatching& named_;
  Coordination& coordination_;
  std::vector<std::pair<std::string, int64_t>> cancelled_;  // with the time of the cancellation
  std::set<std::string> expected_;                          // that runs which have begun will bring
};

}  // namespace smddp
