// In which order the gradients of a plan are put into buckets: as listed in the first step; from the second on as they
// came to rank 0 in the first, when rank 0 has told all ranks.
//
// A tensor of the second step that comes before rank 0 has told waits. That ends: what rank 0 waits for belongs to the
// first step, which needs nothing of the second.
//
// Threads: the engine's.
#pragma once

#include <optional>

#include "collectives/fabric.h"
#include "runtime/control/messages.h"
#include "runtime/plans/plan_table.h"

namespace smddp {

class LayoutSchedule {
 public:
  // `observe`: SMDDP_GRADIENT_ORDER is "observed"; rank 0's counts. Both references outlive it.
  LayoutSchedule(const Fabric& fabric, const PlanTable& plans, bool observe)
      : fabric_(fabric), plans_(plans), observe_(observe) {}

  // Rank 0: what to tell the ranks of the plan, once. Nothing: on other ranks, or not known yet.
  std::optional<PlanOrder> OrderToTell(const Plan& plan) const;
  // False: that cannot be the order of this plan, and nothing has changed.
  bool Apply(Plan* plan, const PlanOrder& told) const;

 private:
  const Fabric& fabric_;
  const PlanTable& plans_;
  const bool observe_;
};

}  // namespace smddp
