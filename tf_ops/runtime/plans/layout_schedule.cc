#include "runtime/plans/layout_schedule.h"

#include <utility>

#include "collectives/rail/selector.h"
#include "runtime/control/operation_id.h"

namespace smddp {

std::optional<PlanOrder> LayoutSchedule::OrderToSend(const Plan& plan) const {
  if (fabric_.topology.rank() != 0 || !plan.agreed.decided || plan.agreed.refused() || plan.ordered)
    return std::nullopt;
  PlanOrder order;
  order.plan = plan.agreed.number;
  const size_t listed = plan.listed.buckets().size();
  // Where the sum of an element depends on its position in the bucket, positions must not change.
  if (!observe_ || listed <= 1 || SumsDependOnPlace(fabric_)) return order;
  if (plan.first_step.size() < plan.spec.tensors.size()) return std::nullopt;
  const FusionLimits limits = plans_.LimitsFor(plan.spec);
  const std::vector<Bucket> observed = PlanBuckets(plan.spec, limits, plan.first_step);
  const bool fits = listed + observed.size() <= static_cast<size_t>(kMaxBuckets);
  if (fits && !SameGroups(observed, PlanBuckets(plan.spec, limits))) order.order = plan.first_step;
  return order;
}

bool LayoutSchedule::Apply(Plan* plan, const PlanOrder& order) const {
  if (plan->ordered) return false;
  if (!order.order.empty()) {
    const size_t tensors = plan->spec.tensors.size();
    if (!IsPermutation(order.order, tensors)) return false;
    std::vector<Bucket> buckets = PlanBuckets(plan->spec, plans_.LimitsFor(plan->spec), order.order);
    const int listed = static_cast<int>(plan->listed.buckets().size());
    if (listed + buckets.size() > static_cast<size_t>(kMaxBuckets)) return false;
    plan->observed.emplace(std::move(buckets), tensors, /*first_operation=*/listed, /*first_step=*/1);
  }
  plan->ordered = true;
  return true;
}

}  // namespace smddp
