// Warns of operations that wait for too long, and ends them when a limit is set. All ranks are asked for their status
// (stall_report.h): the missing ones, and the others, because it may be a deadlock.
//
// While a program starts, a rank that is late is told after 5 s already, in one line for each broadcast or allgather
// that waits for it. The start ends with the first step of a plan, or after 16 named requests.
//
// Threads: the engine's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/env/env.h"
#include "runtime/control/component.h"
#include "runtime/control/reminder.h"
#include "runtime/control/running_tasks.h"
#include "runtime/health/stall_report.h"
#include "runtime/named/named_matching.h"
#include "runtime/plans/planned_reductions.h"

namespace smddp {

class StallWatch : public Component {
 public:
  // All outlive it. `join` is asked whether it waits, and since when.
  StallWatch(ControlBus& bus, const Env& env, RunningTasks& tasks, Coordination& coordination,
             const NamedMatching& named, const PlannedReductions& planned, const Component& join);

  StallReport& report() { return report_; }

  Status OnMessage(int from, std::string_view message) override;
  void Tick(int64_t now_ns) override;

 private:
  bool IsStalled(int64_t now_ns) const;
  void Warn(int64_t now_ns);
  void EndStalled(int64_t now_ns);
  std::vector<std::string> OwnStalls(int64_t now_ns);
  std::string Deadlock() const;
  // A sentence about gradients that have waited longer than `error_s_`; "" when there are none.
  std::string StuckGradients(int64_t now_ns) const;
  // Since when this rank has waited in hvd.join while the others have reduced nothing.
  int64_t JoinStillNs() const;
  // The answer to other ranks that ask.
  RankStatus LocalStatus() const;
  WaitsFor WaitingFor() const;
  std::string Sentence(int64_t now_ns) const;

  ControlBus& bus_;
  const double warn_s_, error_s_;  // 0: never
  RunningTasks& tasks_;
  Coordination& coordination_;
  const NamedMatching& named_;
  const PlannedReductions& planned_;
  const Component& join_;
  Reminder join_reminder_;
  StallReport report_;
};

}  // namespace smddp
