// The order in which the gradients of a plan are put into buckets. In the first step: as listed. From the second step
// on: the order in which they became ready on rank 0 in the first step, once rank 0 has sent it.
//
// A tensor of the second step that arrives before rank 0's order waits. This cannot deadlock: rank 0 waits only for
// the first step, which does not depend on the second.
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
  // `observe`: SMDDP_GRADIENT_ORDER is "observed"; only rank 0's setting matters. Both references outlive it.
  LayoutSchedule(const Fabric& fabric, const PlanTable& plans, bool observe)
      : fabric_(fabric), plans_(plans), observe_(observe) {}

  // On rank 0: the order to send for the plan, once. Nothing: on other ranks, or while it is not known.
  std::optional<PlanOrder> OrderToSend(const Plan& plan) const;
  // False: this cannot be an order of the plan, and nothing has changed.
  bool Apply(Plan* plan, const PlanOrder& order) const;

 private:
  const Fabric& fabric_;
  const PlanTable& plans_;
  const bool observe_;
};

}  // namespace smddp
