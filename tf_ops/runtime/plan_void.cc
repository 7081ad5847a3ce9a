// What the engine asks the plan table when a step is given up (runtime/engine_cancel.cc).
#include "runtime/plan_table.h"

namespace smddp {
namespace {

// Of plans that this rank does not know. What other ranks say must not take any amount of memory.
constexpr size_t kMaxUnknown = 1 << 12;

}  // namespace

bool PlanTable::BreaksOff(const PlannedTensor& where) const {
  const Plan* const plan = PlanOf(where);
  return plan != nullptr && plan->verdict.ok() && plan->steps.BreaksOff(where.run);
}

bool PlanTable::LacksTensors(const PlannedTensor& where) const {
  const Plan* const plan = PlanOf(where);
  return plan != nullptr && plan->verdict.ok() && where.run != 0 && plan->steps.run() == where.run &&
         !plan->steps.complete();
}

bool PlanTable::LacksTensorsOf(const std::string& name, int64_t step) const {
  const auto at = plans_.find(name);
  if (at == plans_.end() || !at->second.verdict.ok()) return false;
  const PlanSteps& steps = at->second.steps;
  return steps.run() != 0 && steps.begun() == step && !steps.complete();
}

std::vector<std::string> PlanTable::BrokenOff() const {
  std::vector<std::string> broken;
  for (const auto& [name, plan] : plans_) {
    const PlanSteps& steps = plan.steps;
    if (plan.verdict.ok() && steps.run() != 0 && steps.finished() && !steps.complete()) broken.push_back(name);
  }
  return broken;
}

// A plan that was refused begins anew.
void PlanTable::Void(const std::string& name, int64_t step, const Status& why) {
  const auto at = plans_.find(name);
  if (at != plans_.end() && at->second.verdict.ok()) return at->second.steps.Void(step, why);
  if (void_.size() < kMaxUnknown) void_[name].emplace(step, why);
}

void PlanTable::KeepPlaces(const std::string& name) {
  Plan& plan = plans_.at(name);
  std::vector<int>& kept = plan.kept[plan.steps.begun()];
  for (int index = 0; index < static_cast<int>(plan.spec.tensors.size()); ++index) {
    if (plan.steps.Of(index) == plan.steps.begun()) continue;
    plan.steps.Fill(index);
    kept.push_back(index);
  }
}

void PlanTable::Fill(const std::string& name, int64_t step, const Lender& lend) {
  const auto at = plans_.find(name);
  if (at == plans_.end() || !at->second.verdict.ok()) return;
  const auto kept = at->second.kept.extract(step);
  if (kept.empty()) return;
  for (const int index : kept.mapped()) PlaceZeros(&at->second, index, step - 1, lend);
}

}  // namespace smddp
