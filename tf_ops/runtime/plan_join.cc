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
  for (const auto& [id, plan] : plans_) {
    if (plan.steps > 0) steps[plan.name] = plan.steps;
  }
  return steps;
}

int64_t PlanTable::StepsOf(int id) const {
  const auto at = plans_.find(id);
  return at == plans_.end() ? 0 : at->second.steps;
}

void PlanTable::AddForeign(const std::string& name, const PlanSpec& spec, std::vector<std::string> facts, int number,
                           bool devices_possible) {
  const int id = --last_foreign_;
  if (!Add(id, name, spec).ok()) return;
  plans_.at(id).facts = std::move(facts);
  SetNumber(id, number);
  // This rank has joined: what the others agree on reaches it, and it brings no card.
  if (devices_possible) plans_.at(id).way = Way::kAsked;
  Decide(id, Status::Ok());
}

bool PlanTable::Claim(int id, const PlanSpec& spec) {
  const std::vector<std::string> facts = DescribePlan(spec);
  for (auto at = plans_.begin(); at != plans_.end() && at->first < 0; ++at) {
    if (at->second.facts != facts) continue;
    auto node = plans_.extract(at);  // what refers to the plan stays valid
    node.key() = id;
    if (node.mapped().way == Way::kAsked) node.mapped().way = Way::kUnknown;  // by the others; now also by this rank
    plans_.insert(std::move(node));
    return true;
  }
  return false;
}

Result<bool> PlanTable::BringZeros(const std::string& name, int64_t steps, const Lender& lend) {
  const auto at =
      std::find_if(plans_.begin(), plans_.end(), [&](const auto& each) { return each.second.name == name; });
  if (at == plans_.end()) return false;
  const int id = at->first;
  const Plan& plan = at->second;
  if (plan.came.empty()) return true;
  if (steps > plan.steps + kMostStepsAhead) {
    return Status(Code::kInternal, "Another rank says that it has begun step " + std::to_string(steps) + " of " + name +
                                       ", which is step " + std::to_string(plan.steps) +
                                       " here. Do all ranks run the same version of smddp_tf?");
  }
  for (int64_t step = *std::min_element(plan.came.begin(), plan.came.end()); step < steps; ++step) {
    for (size_t index = 0; index < plan.came.size(); ++index) {
      if (plan.came[index] != step) continue;
      Arrival zeros = lend(plan.spec.tensors[index]);
      if (zeros.done) (void)Arrive(id, static_cast<int>(index), zeros.tensor, std::move(zeros.done));
    }
  }
  return true;
}

}  // namespace smddp
