// Plans and hvd.join: how far each has come, and the steps that a rank without data takes part in.
#include <algorithm>

#include "runtime/plan_table.h"

namespace smddp {
namespace {

// Nobody is further ahead: a step needs the zeros of all who have joined. What another rank says must not keep this one
// busy for ever.
constexpr int64_t kMostStepsAhead = 1 << 13;

}  // namespace

StepCounts PlanTable::Steps() const {
  StepCounts steps;
  for (const auto& [name, plan] : plans_) {
    if (plan.steps.begun() > 0) steps[name] = plan.steps.begun();
  }
  return steps;
}

int64_t PlanTable::StepsOf(const PlannedTensor& where) const {
  const Plan* const plan = PlanOf(where);
  return plan == nullptr ? 0 : plan->steps.begun();
}

Status PlanTable::AddForeign(const std::string& name, const PlanSpec& spec, int number, bool devices_possible) {
  Plan& plan = plans_[name];
  if (!plan.name.empty() && plan.verdict.ok()) {
    return Status(Code::kInternal, "Rank 0 sent a verdict on " + name +
                                       ", which this rank has asked for, as if it had called hvd.join before. Do all "
                                       "ranks run the same version of smddp_tf?");
  }
  Make(&plan, name, spec);
  if (!plan.verdict.ok()) return Status::Ok();
  plan.number = number;
  // This rank has joined: what the others agree on reaches it, and it brings no card.
  if (devices_possible) plan.way = Way::kAsked;
  Decide(name, Status::Ok());
  return Status::Ok();
}

Result<bool> PlanTable::BringZeros(const std::string& name, int64_t steps, const Lender& lend) {
  const auto at = plans_.find(name);
  if (at == plans_.end()) return false;
  Plan& plan = at->second;
  const int tensors = static_cast<int>(plan.spec.tensors.size());
  if (tensors == 0 || !plan.verdict.ok()) return true;
  if (steps > plan.steps.begun() + kMostStepsAhead) {
    return Status(Code::kInternal, "Another rank says that it has begun step " + std::to_string(steps) + " of " + name +
                                       ", which is step " + std::to_string(plan.steps.begun()) +
                                       " here. Do all ranks run the same version of smddp_tf?");
  }
  for (int64_t step = plan.steps.fewest(); step < steps; ++step) {
    for (int index = 0; index < tensors; ++index) {
      if (plan.steps.Of(index) != step) continue;
      plan.steps.Fill(index);
      PlaceZeros(&plan, index, step, lend);
    }
  }
  return true;
}

void PlanTable::PlaceZeros(Plan* plan, int index, int64_t step, const Lender& lend) {
  Arrival zeros = lend(plan->spec.tensors[index]);
  if (!zeros.done) return;
  zeros.index = index;
  zeros.step = step;
  zeros.zeros = true;
  Place(plan, std::move(zeros));
}

}  // namespace smddp
