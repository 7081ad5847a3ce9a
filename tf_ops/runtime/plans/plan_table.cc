#include "runtime/plans/plan_table.h"

#include <algorithm>
#include <iterator>

#include "runtime/control/operation_id.h"

namespace smddp {
namespace {

// Limits the memory for plans that other ranks mention and this one does not know.
constexpr size_t kMaxUnknown = 1 << 12;

}  // namespace

int PlanRegistry::NumberOf(const PlanSpec& spec) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto [at, is_new] = numbers_.try_emplace(PlanDigest(spec), static_cast<int>(specs_.size()));
  if (is_new) specs_.push_back(std::make_shared<const PlanSpec>(spec));
  return at->second;
}

bool PlanRegistry::IsOnly(const std::string& key) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return std::count_if(specs_.begin(), specs_.end(), [&](const auto& spec) { return spec->key == key; }) <= 1;
}

std::shared_ptr<const PlanSpec> PlanRegistry::Find(int number) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return number >= 0 && number < static_cast<int>(specs_.size()) ? specs_[number] : nullptr;
}

Plan* PlanTable::At(const PlannedTensor& where) const {
  const auto at = local_.find({where.plan, where.site});
  return at == local_.end() ? nullptr : at->second;
}

Plan* PlanTable::Named(const std::string& name) {
  const auto at = plans_.find(name);
  return at == plans_.end() ? nullptr : &at->second;
}

Plan* PlanTable::Numbered(int number) {
  const auto at = std::find_if(plans_.begin(), plans_.end(),
                               [&](const auto& each) { return each.second.agreed().number() == number; });
  return number < 0 || at == plans_.end() ? nullptr : &at->second;
}

std::vector<PlanWait> PlanTable::Waits() const {
  std::vector<PlanWait> waits;
  for (const auto& [name, plan] : plans_) plan.AddWaits(&waits);
  return waits;
}

Plan* PlanTable::Add(const PlannedTensor& where, const std::string& name, const PlanSpec& spec, bool* made) {
  Plan* const known = Named(name);
  *made = known == nullptr || known->agreed().refused();
  Plan* const plan = *made ? Make(name, spec) : known;
  local_[{where.plan, where.site}] = plan;
  plan->agreed().AskIn(where.run);
  return plan;
}

Plan* PlanTable::AddForeign(const std::string& name, const PlanSpec& spec) {
  const Plan* const known = Named(name);
  return known != nullptr && !known->agreed().refused() ? nullptr : Make(name, spec);
}

// Also replaces a plan that was refused: nothing of it is under way, and its sites stay.
Plan* PlanTable::Make(const std::string& name, const PlanSpec& spec) {
  const int64_t bucket_bytes = bucket_bytes_ != kAutoBytes ? bucket_bytes_ : BucketBytesFor(spec, nodes_);
  Plan& plan = plans_.insert_or_assign(name, Plan(name, spec, bucket_bytes)).first->second;
  known_ = static_cast<int64_t>(plans_.size());
  const auto given_up = void_.extract(name);
  if (!given_up.empty()) {
    for (const auto& [step, why] : given_up.mapped()) plan.steps().Void(step, why);
  }
  const size_t buckets = plan.buckets().size();
  if (buckets <= static_cast<size_t>(kMaxBuckets)) return &plan;
  plan.agreed().Decide(Status(Reason::kNoResources, "The gradients of '", spec.key, "' make ", buckets,
                              " fusion buckets; at most ", kMaxBuckets,
                              " are possible. Set a larger SMDDP_BUCKET_BYTES (or HOROVOD_FUSION_THRESHOLD)."));
  return &plan;
}

void PlanTable::Forget(Plan* plan) {
  for (auto at = local_.begin(); at != local_.end();) at = at->second == plan ? local_.erase(at) : std::next(at);
  plans_.erase(std::string(plan->name()));
  known_ = static_cast<int64_t>(plans_.size());
}

void PlanTable::Void(const std::string& name, int64_t step, const Status& why) {
  Plan* const plan = Named(name);
  if (plan != nullptr && !plan->agreed().refused()) return plan->steps().Void(step, why);  // a refused plan is replaced
  if (void_.size() < kMaxUnknown) void_[name].emplace(step, why);
}

}  // namespace smddp
