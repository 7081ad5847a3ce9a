#include "runtime/plan_registry.h"

namespace smddp {

int PlanRegistry::NumberOf(const PlanSpec& spec) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto [at, is_new] = numbers_.try_emplace(DescribePlan(spec), static_cast<int>(specs_.size()));
  if (is_new) specs_.push_back(std::make_shared<const PlanSpec>(spec));
  return at->second;
}

std::shared_ptr<const PlanSpec> PlanRegistry::Find(int number) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return number >= 0 && number < static_cast<int>(specs_.size()) ? specs_[number] : nullptr;
}

}  // namespace smddp
