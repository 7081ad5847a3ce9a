#include "runtime/plans/plan_registry.h"

namespace smddp {

int PlanRegistry::NumberOf(const PlanSpec& spec) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto [at, is_new] = numbers_.try_emplace(PlanDigest(spec), static_cast<int>(specs_.size()));
  if (is_new) {
    specs_.push_back(std::make_shared<const PlanSpec>(spec));
    ++of_key_[spec.key];
  }
  return at->second;
}

bool PlanRegistry::IsOnly(const std::string& key) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto at = of_key_.find(key);
  return at == of_key_.end() || at->second == 1;
}

std::shared_ptr<const PlanSpec> PlanRegistry::Find(int number) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return number >= 0 && number < static_cast<int>(specs_.size()) ? specs_[number] : nullptr;
}

}  // namespace smddp
