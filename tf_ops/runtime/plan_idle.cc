// What runtime/plan_retirement.h asks the plan table.
#include <algorithm>

#include "core/clock.h"
#include "runtime/plan_table.h"

namespace smddp {

PlanTable::Plan* PlanTable::Numbered(int number) {
  const auto at =
      std::find_if(plans_.begin(), plans_.end(), [&](const auto& each) { return each.second.number == number; });
  return number < 0 || at == plans_.end() ? nullptr : &at->second;
}

bool PlanTable::IsIdle(const Plan& plan) {
  const bool way_is_known = plan.way == Way::kHost || plan.way == Way::kDevice;
  return plan.decided && plan.verdict.ok() && plan.open == 0 && plan.steps.complete() && plan.kept.empty() &&
         way_is_known && !plan.keeping;
}

int PlanTable::LeastRecentlyUsed(int64_t before_ns) const {
  const Plan* least = nullptr;
  for (const auto& [name, plan] : plans_) {
    if (plan.number < 0 || plan.last_use_ns > before_ns || !IsIdle(plan)) continue;
    if (least == nullptr || plan.last_use_ns < least->last_use_ns) least = &plan;
  }
  return least == nullptr ? -1 : least->number;
}

std::optional<int64_t> PlanTable::Keep(int number) {
  Plan* const plan = Numbered(number);
  if (plan == nullptr || !IsIdle(*plan)) return std::nullopt;
  plan->keeping = true;
  plan->last_use_ns = NowNs();  // who was asked about in vain is not the next one
  return plan->steps.begun();
}

std::vector<PlanTable::Kept> PlanTable::EndKeeping(int number, bool forget) {
  Plan* const plan = Numbered(number);
  if (plan == nullptr) return {};
  std::vector<Kept> kept = TakeKept(plan);
  if (!forget) return kept;
  for (auto at = local_.begin(); at != local_.end();) at = at->second == plan ? local_.erase(at) : std::next(at);
  plans_.erase(std::string(plan->name));
  known_ = static_cast<int64_t>(plans_.size());
  return kept;
}

std::vector<PlanTable::Kept> PlanTable::TakeKept(Plan* plan) {
  std::vector<Kept> kept = std::move(plan->waiting);
  plan->waiting.clear();
  plan->keeping = false;
  waiting_tensors_ -= static_cast<int64_t>(kept.size());
  unfinished_ -= static_cast<int64_t>(kept.size());
  return kept;
}

}  // namespace smddp
