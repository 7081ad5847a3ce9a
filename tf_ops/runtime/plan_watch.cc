// What the stall watch asks the plan table.
#include <algorithm>
#include <limits>

#include "runtime/plan_table.h"

namespace smddp {
namespace {

// The buckets of which tensors wait.
template <class Plan, class Visit>
void ForEachWaiting(Plan& plan, Visit visit) {
  for (auto& epoch : plan.epochs) {
    for (auto& bucket : epoch.layout.buckets()) {
      const bool runs = plan.busy.count(bucket.operation) != 0;  // or another epoch's of its number: watched as a task
      if (!runs && !bucket.generations.empty()) visit(bucket);
    }
  }
}

std::string Since(const std::string& key, int64_t since_ns, int64_t now_ns) {
  return "gradients of '" + key + "' have waited for " + std::to_string((now_ns - since_ns) / 1000000000) +
         " s on this rank ";
}

}  // namespace

int64_t PlanTable::OldestNs() const {
  int64_t oldest = std::numeric_limits<int64_t>::max();
  for (const auto& [id, plan] : plans_) {
    for (const Epoch& epoch : plan.epochs) {
      for (const PlannedBucket& bucket : epoch.layout.buckets()) {
        if (!bucket.generations.empty()) oldest = std::min(oldest, bucket.generations.front().since_ns);
      }
    }
    if (!plan.held.empty()) oldest = std::min(oldest, plan.held.front().since_ns);
  }
  return oldest;
}

bool PlanTable::InPart() const {
  return std::any_of(plans_.begin(), plans_.end(),
                     [](const auto& named) { return named.second.verdict.ok() && !named.second.steps.complete(); });
}

std::string PlanTable::DescribeMissing(const Plan& plan, const PlannedBucket& bucket, int64_t now_ns) {
  const Generation& generation = bucket.generations.front();
  std::string missing;
  int shown = 0;
  for (size_t slot = 0; slot < generation.arrivals.size() && shown < 6; ++slot) {
    if (generation.arrivals[slot].done) continue;
    missing += (shown++ == 0 ? "" : ", ") + std::to_string(bucket.bucket.slots[slot].tensor);
  }
  std::string what = missing.empty() ? "" : "for gradient " + missing + " of the same fusion bucket";
  if (!plan.decided) what += std::string(what.empty() ? "" : " and ") + "for the other ranks to trace the same step";
  return Since(plan.spec.key, generation.since_ns, now_ns) + what + ".";
}

std::string PlanTable::DescribeHeld(const Plan& plan, int64_t now_ns) const {
  return Since(plan.spec.key, plan.held.front().since_ns, now_ns) + "for rank " +
         std::to_string(fabric_.topology.global_rank(0)) +
         (plan.ordered ? " to end the trial of autotune before them." : " to have them all for the first time.");
}

bool PlanTable::IsStalled(int64_t now_ns, double seconds) const {
  bool stalled = false;
  for (const auto& [id, plan] : plans_) {
    ForEachWaiting(plan, [&](const PlannedBucket& bucket) {
      const Generation& generation = bucket.generations.front();
      stalled |= generation.reminder.Due(generation.since_ns, now_ns, seconds);
    });
    stalled |= !plan.held.empty() && plan.held_reminder.Due(plan.held.front().since_ns, now_ns, seconds);
  }
  return stalled;
}

std::vector<std::string> PlanTable::Stalled(int64_t now_ns, double seconds) {
  std::vector<std::string> sentences;
  for (auto& [id, plan] : plans_) {
    ForEachWaiting(plan, [&, &plan = plan](PlannedBucket& bucket) {
      Generation& generation = bucket.generations.front();
      if (generation.reminder.Take(generation.since_ns, now_ns, seconds)) {
        sentences.push_back(DescribeMissing(plan, bucket, now_ns));
      }
    });
    if (!plan.held.empty() && plan.held_reminder.Take(plan.held.front().since_ns, now_ns, seconds)) {
      sentences.push_back(DescribeHeld(plan, now_ns));
    }
  }
  return sentences;
}

std::string PlanTable::StuckFor(int64_t now_ns, double seconds) const {
  std::string stuck;
  const auto due = [&](int64_t since_ns) { return stuck.empty() && now_ns - since_ns > seconds * 1e9; };
  for (const auto& [id, plan] : plans_) {
    ForEachWaiting(plan, [&, &plan = plan](const PlannedBucket& bucket) {
      if (due(bucket.generations.front().since_ns)) stuck = DescribeMissing(plan, bucket, now_ns);
    });
    if (!plan.held.empty() && due(plan.held.front().since_ns)) stuck = DescribeHeld(plan, now_ns);
  }
  return stuck;
}

}  // namespace smddp
