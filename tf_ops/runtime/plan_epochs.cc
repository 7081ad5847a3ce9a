// Which epoch comes next: told by rank 0, adopted by all.
#include <algorithm>

#include "collectives/hierarchical.h"
#include "runtime/operation_id.h"
#include "runtime/plan_table.h"

namespace smddp {
namespace {

constexpr int64_t kLeastChunkBytes = 1024;
constexpr int kMostStepsPerEpoch = 1 << 20;

int64_t LargestOf(const std::vector<Bucket>& buckets) {
  int64_t largest = 0;
  for (const Bucket& bucket : buckets) largest = std::max(largest, bucket.wire_bytes());
  return largest;
}

// The listed buckets go on for good.
bool IsAsBefore(const PlanOrder& told) {
  return told.order.empty() && told.settings == TuneSettings() && told.steps == 0;
}

bool AnyNotHalf(const std::vector<Bucket>& buckets) {
  return std::any_of(buckets.begin(), buckets.end(), [](const Bucket& bucket) { return !IsHalf(bucket.wire_dtype); });
}

}  // namespace

// --- Rank 0 ---

void PlanTable::TryTellOrder(Plan* plan) {
  if (fabric_.topology.rank() != 0 || !plan->decided || !plan->verdict.ok() || plan->ordered) return;
  if (options_.observe_order && plan->listed_buckets > 1 && !SumsDependOnPlace(fabric_)) {
    if (plan->first_step.size() < plan->spec.tensors.size()) return;
    const std::vector<Bucket> observed = PlanBuckets(plan->spec, LimitsFor(plan->spec), plan->first_step);
    const bool fits = plan->listed_buckets + observed.size() <= static_cast<size_t>(kMaxBuckets);
    if (fits && !SameGroups(observed, PlanBuckets(plan->spec, LimitsFor(plan->spec)))) plan->order = plan->first_step;
  }
  PlanOrder told;
  told.order = plan->order;
  const bool numbers_suffice = !plan->order.empty() || 2 * plan->listed_buckets <= kMaxBuckets;
  if (options_.autotune && fabric_.topology.size() > 1 && numbers_suffice) {
    if (tune_log_ == nullptr) tune_log_ = std::make_unique<TuneLog>(options_.autotune_log);
    auto tuner = std::make_unique<PlanTuner>(plan->spec.key, ChoicesFor(*plan), tune_log_.get());
    if (!tuner->over()) {
      told.settings = tuner->settings();
      told.steps = tuner->steps();
      plan->tuner = std::move(tuner);
    }
  }
  Tell(plan, told);
}

void PlanTable::TryTellNext(Plan* plan) {
  if (plan->tuner == nullptr || plan->epochs.size() > 1 || plan->epochs.back().left != 0) return;
  if (plan->epochs.back().start == 0) return;  // epoch 1 is TryTellOrder's
  plan->tuner->EndTrial();
  PlanOrder told;
  told.order = plan->order;
  told.settings = plan->tuner->settings();
  told.steps = plan->tuner->steps();
  Tell(plan, told);
}

void PlanTable::Tell(Plan* plan, PlanOrder told) {
  told.plan = plan->number;
  tell_others_(told);
  Apply(plan, told);
}

// Values that would make no difference are left out. All of them give the same bits.
TuneChoices PlanTable::ChoicesFor(const Plan& plan) const {
  const int64_t bytes = LimitsFor(plan.spec).bucket_bytes;
  const int window = DefaultChunksInFlight(fabric_.topology);
  TuneChoices choices = {{bytes}, {fabric_.chunk_bytes}, {window}, {kAutoAlgorithm}};

  const int nodes = fabric_.topology.node_count();
  const bool auto_rail = fabric_.rail.by_name == nullptr;
  // A single bucket may be summed in another order than several (collectives/selector.h).
  const bool places_may_change = !SumsDependOnPlace(fabric_) && (plan.listed_buckets > 1 || !auto_rail || nodes <= 2);
  const std::vector<Bucket> of_default = PlanBuckets(plan.spec, {bytes}, plan.order);
  int64_t largest = LargestOf(of_default);
  if (places_may_change) {
    std::vector<std::vector<Bucket>> tried = {of_default};
    for (const int64_t other : {bytes / 2, bytes * 2, bytes * 4}) {
      std::vector<Bucket> buckets = PlanBuckets(plan.spec, {other}, plan.order);
      if (plan.listed_buckets + buckets.size() > static_cast<size_t>(kMaxBuckets)) continue;
      const bool known = std::any_of(tried.begin(), tried.end(), [&](const auto& t) { return SameGroups(t, buckets); });
      if (known) continue;
      largest = std::max(largest, LargestOf(buckets));
      choices.bucket_bytes.push_back(other);
      tried.push_back(std::move(buckets));
    }
    const int64_t half = fabric_.chunk_bytes / 2;
    if (half >= kLeastChunkBytes && largest > half) choices.chunk_bytes.push_back(half);
  }
  const int other_window = window == kMaxStepsInFlight ? window / 2 : kMaxStepsInFlight;
  if (largest > fabric_.chunk_bytes * std::min(window, other_window)) choices.chunks_in_flight.push_back(other_window);
  if (places_may_change && auto_rail && nodes > 2 && AnyNotHalf(of_default)) {
    for (size_t i = 0; i < Algorithms().size(); ++i) {
      if (Algorithms()[i]->info().order == SumOrder::kDoubling) choices.algorithm.push_back(static_cast<int64_t>(i));
    }
  }
  return choices;
}

// --- All ranks ---

FusionLimits PlanTable::LimitsOf(const Plan& plan, const TuneSettings& settings) const {
  return settings.bucket_bytes == kAutoBytes ? LimitsFor(plan.spec) : FusionLimits{settings.bucket_bytes};
}

bool PlanTable::Possible(const Plan& plan, const PlanOrder& told) const {
  const TuneSettings& settings = told.settings;
  const bool permutation = told.order.empty() || IsPermutation(told.order, plan.spec.tensors.size());
  if (!permutation || (settings.bucket_bytes < 0 && settings.bucket_bytes != kAutoBytes)) return false;
  if (IsAsBefore(told)) return true;
  const size_t buckets = PlanBuckets(plan.spec, LimitsOf(plan, settings), told.order).size();
  return plan.listed_buckets + buckets <= static_cast<size_t>(kMaxBuckets) && told.steps >= 0 &&
         told.steps <= kMostStepsPerEpoch &&  //
         (settings.chunk_bytes == 0 || settings.chunk_bytes >= std::min(kLeastChunkBytes, fabric_.chunk_bytes)) &&
         settings.chunk_bytes <= fabric_.chunk_bytes &&  // what a slot holds
         settings.chunks_in_flight >= 0 && settings.chunks_in_flight <= kMaxStepsInFlight &&
         settings.algorithm >= kAutoAlgorithm && settings.algorithm < static_cast<int>(Algorithms().size());
}

Status PlanTable::Adopt(const PlanOrder& told) {
  for (auto& [id, plan] : plans_) {
    if (plan.number != told.plan || told.plan < 0 || plan.epochs.back().left < 0) continue;
    if (!Possible(plan, told)) break;
    Apply(&plan, told);
    return Status::Ok();
  }
  return Status(Code::kInternal,
                "Rank 0 sent an order of gradients that fits no plan. Do all ranks run the same version of smddp_tf?");
}

void PlanTable::Apply(Plan* plan, const PlanOrder& told) {
  plan->ordered = true;
  if (IsAsBefore(told)) {
    plan->epochs.back().end = kForever;
    plan->epochs.back().left = -1;
  } else {
    Begin(plan, told);
  }
  std::vector<Held> held = std::move(plan->held);
  plan->held.clear();
  plan->held_reminder = {};
  for (Held& each : held) Put(plan, std::move(each.arrival), each.since_ns);
}

void PlanTable::Begin(Plan* plan, const PlanOrder& told) {
  const size_t tensors = plan->spec.tensors.size();
  const FusionLimits limits = LimitsOf(*plan, told.settings);
  const int64_t start = plan->epochs.back().end;
  PlanLayout layout(PlanBuckets(plan->spec, limits, told.order), tensors, /*first_operation=*/plan->listed_buckets,
                    start);
  const int buckets = static_cast<int>(layout.buckets().size());
  const int64_t end = told.steps > 0 ? start + told.steps : kForever;
  const int64_t left = told.steps > 0 ? told.steps * static_cast<int64_t>(tensors) : -1;
  plan->epochs.push_back({std::move(layout), told.settings, start, end, left});
  while (plan->epochs.size() > 1 && plan->epochs.front().left == 0) plan->epochs.pop_front();

  LogAgreed(*plan);
  for (const int index : told.order) trace_.Record("plan_order", plan->spec.key, index);
  if (!(told.settings == TuneSettings())) {
    trace_.Record("tuned_bucket_bytes", plan->spec.key, static_cast<int>(limits.bucket_bytes));
    trace_.Record("tuned_chunk_bytes", plan->spec.key, static_cast<int>(told.settings.chunk_bytes));
    trace_.Record("tuned_in_flight", plan->spec.key, told.settings.chunks_in_flight);
    trace_.Record("tuned_algorithm", plan->spec.key, told.settings.algorithm);
    trace_.Record("tuned_steps", plan->spec.key, told.steps);
  }
  if (plan->tuner == nullptr) return;
  if (told.steps > 0) {
    plan->tuner->BeginTrial(buckets);
  } else {
    plan->tuner = nullptr;
  }
}

}  // namespace smddp
