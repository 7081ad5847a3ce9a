// Steps that the framework has cancelled.
//
// A cancelled step often ends normally: the end of the data cancels a step whose gradients are already being reduced
// on all ranks. Or it is given up (plans/given_up_steps.h, named/named_matching.h), and ends when the other ranks
// have reached it. A step that no rank can complete, because each waits for another, ends the session on all ranks.
//
// Threads: the engine's.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/process/log.h"
#include "runtime/control/component.h"
#include "runtime/health/stall_report.h"

namespace smddp {

class CancelWatch : public Component {
 public:
  // Both outlive it.
  CancelWatch(ControlBus& bus, StallReport& report) : bus_(bus), report_(report) {}

  // `what`: the request, or the gradient, whose step was cancelled.
  void Add(const std::string& what) {
    Log(LogLevel::kDebug, "the step that holds '", what, "' was cancelled");
    cancelled_.emplace_back(what, NowNs());
  }
  void Tick(int64_t now_ns) override {
    if (cancelled_.empty()) return;
    // Everything under way is newer than the cancelled step: that step has ended, successfully or with its own error.
    const int64_t oldest_ns = bus_.OldestNs();
    const auto over = [&](const auto& each) { return oldest_ns > each.second; };
    cancelled_.erase(std::remove_if(cancelled_.begin(), cancelled_.end(), over), cancelled_.end());
    if (cancelled_.empty()) return;
    const auto& [what, when_ns] = cancelled_.front();
    if (now_ns - when_ns < kGraceNs || now_ns - bus_.last_worked_ns() < kGraceNs) return;
    const Topology& topology = bus_.topology();
    if (!report_.AskAll(now_ns) || !report_.AllWait(kGraceNs / 2)) return;
    bus_.Fail(Status(Reason::kStepGivenUp, "Rank ", topology.global_rank(topology.rank()),
                     " gave up a step: another operation of the step failed there (see that rank's own error) while '",
                     what, "' waited for the other ranks or for other gradients."));
  }

 private:
  // A cancelled step that has not moved for this long cannot complete.
  static constexpr int64_t kGraceNs = 5000 * 1000000LL;
  ControlBus& bus_;
  StallReport& report_;
  std::vector<std::pair<std::string, int64_t>> cancelled_;  // with the time of the cancellation
};

}  // namespace smddp
