#include "runtime/planned/plan_stalls.h"

#include <algorithm>
#include <limits>

namespace smddp {
namespace {

constexpr int kMaxNames = 6;

std::string Since(const std::string& key, int64_t since_ns, int64_t now_ns) {
  return "gradients of '" + key + "' have waited for " + std::to_string((now_ns - since_ns) / 1000000000) +
         " s on this rank ";
}

}  // namespace

template <class Visit>
void PlanStalls::ForEachWait(int64_t now_ns, Visit visit) const {
  for (auto& [name, each] : plans_.all()) {
    Plan& plan = each;
    plan.ForEachBucket([&](PlannedBucket* bucket) {
      if (bucket->running || bucket->generations.empty()) return;  // the stall watch reports a running bucket as a task
      Generation& oldest = bucket->generations.front();
      visit(oldest.since_ns, &oldest.reminder, [&, bucket] { return DescribeMissing(plan, *bucket, now_ns); });
    });
    if (plan.early.empty()) continue;
    visit(plan.early.front().since_ns, &plan.early_reminder, [&] { return DescribeEarly(plan, now_ns); });
  }
}

int64_t PlanStalls::OldestNs() const {
  int64_t oldest = std::numeric_limits<int64_t>::max();
  for (auto& [name, plan] : plans_.all()) {
    plan.ForEachBucket([&](const PlannedBucket* bucket) {
      if (!bucket->generations.empty()) oldest = std::min(oldest, bucket->generations.front().since_ns);
    });
    if (!plan.early.empty()) oldest = std::min(oldest, plan.early.front().since_ns);
  }
  return oldest;
}

bool PlanStalls::InPart() const {
  return std::any_of(plans_.all().begin(), plans_.all().end(), [](const auto& named) {
    return !named.second.agreed.refused() && !named.second.steps.complete();
  });
}

bool PlanStalls::IsDue(int64_t now_ns, double seconds) const {
  bool due = false;
  ForEachWait(now_ns, [&](int64_t since_ns, const Reminder* reminder, const auto&) {
    due |= reminder->Due(since_ns, now_ns, seconds);
  });
  return due;
}

std::vector<std::string> PlanStalls::Take(int64_t now_ns, double seconds) const {
  std::vector<std::string> sentences;
  ForEachWait(now_ns, [&](int64_t since_ns, Reminder* reminder, const auto& describe) {
    if (reminder->Take(since_ns, now_ns, seconds)) sentences.push_back(describe());
  });
  return sentences;
}

std::string PlanStalls::StuckFor(int64_t now_ns, double seconds) const {
  std::string stuck;
  ForEachWait(now_ns, [&](int64_t since_ns, const Reminder*, const auto& describe) {
    if (stuck.empty() && now_ns - since_ns > seconds * 1e9) stuck = describe();
  });
  return stuck;
}

std::string PlanStalls::DescribeMissing(const Plan& plan, const PlannedBucket& bucket, int64_t now_ns) const {
  const Generation& generation = bucket.generations.front();
  std::string missing;
  int shown = 0;
  for (size_t slot = 0; slot < generation.arrivals.size() && shown < kMaxNames; ++slot) {
    if (generation.arrivals[slot].done) continue;
    missing += (shown++ == 0 ? "" : ", ") + std::to_string(bucket.bucket.slots[slot].tensor);
  }
  std::string what = missing.empty() ? "" : "for gradient " + missing + " of the same fusion bucket";
  if (!plan.agreed.decided)
    what += std::string(what.empty() ? "" : " and ") + "for the other ranks to trace the same step";
  return Since(plan.spec.key, generation.since_ns, now_ns) + what + ".";
}

std::string PlanStalls::DescribeEarly(const Plan& plan, int64_t now_ns) const {
  return Since(plan.spec.key, plan.early.front().since_ns, now_ns) + "for rank " +
         std::to_string(topology_.global_rank(0)) + " to compute all of them for the first time.";
}

}  // namespace smddp
