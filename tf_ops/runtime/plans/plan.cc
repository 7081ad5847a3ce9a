#include "runtime/plans/plan.h"

#include "runtime/control/operation_id.h"

namespace smddp {

// --- A bucket ---

PlannedBucket::PlannedBucket(Bucket bucket, int index, int operation, int64_t first_step)
    : bucket_(std::move(bucket)),
      index_(index),
      operation_(operation),
      errors_(bucket_.quantised ? std::make_unique<RoundingErrors>() : nullptr),
      next_step_(first_step) {}

bool PlannedBucket::Put(int slot, Arrival arrival) {
  auto at = generations_.begin();
  while (at != generations_.end() && at->step < arrival.step) ++at;
  if (at == generations_.end() || at->step != arrival.step) {
    at = generations_.emplace(at);
    at->step = arrival.step;
    at->arrivals.resize(bucket_.slots.size());
    at->since_ns = arrival.since_ns;
  }
  at->arrivals[slot] = std::move(arrival);
  ++at->arrived;
  return IsComplete(*at);
}

Generation PlannedBucket::Begin() {
  running_ = true;
  ++next_step_;
  Generation next = std::move(generations_.front());
  generations_.pop_front();
  return next;
}

void PlannedBucket::TakeWaiting(std::vector<Arrival>* into) {
  for (Generation& generation : std::exchange(generations_, {})) {
    for (Arrival& arrival : generation.arrivals) {
      if (arrival.done) into->push_back(std::move(arrival));
    }
  }
}

PlanLayout::PlanLayout(std::vector<Bucket> buckets, size_t tensors, int first_operation, int64_t first_step)
    : place_of_tensor_(tensors) {
  for (Bucket& bucket : buckets) {
    const int number = static_cast<int>(buckets_.size());
    for (size_t slot = 0; slot < bucket.slots.size(); ++slot) {
      place_of_tensor_[bucket.slots[slot].tensor] = {number, static_cast<int>(slot)};
    }
    buckets_.emplace_back(std::move(bucket), number, first_operation + number, first_step);
  }
}

Placed PlanLayout::Put(Arrival arrival) {
  const auto [number, slot] = place_of_tensor_[arrival.index];
  PlannedBucket& bucket = buckets_[number];
  return {&bucket, bucket.Put(slot, std::move(arrival))};
}

// --- A plan ---

Plan::Plan(std::string name, const PlanSpec& spec, int64_t bucket_bytes)
    : name_(std::move(name)),
      spec_(spec),
      bucket_bytes_(bucket_bytes),
      steps_(spec.tensors.size()),
      listed_(PlanBuckets(spec, bucket_bytes), spec.tensors.size(), /*first_operation=*/0, /*first_step=*/0) {}

Placed Plan::Put(Arrival arrival) {
  ++open_;
  last_use_ns_ = arrival.since_ns;
  if (arrival.step == 0) first_step_.push_back(arrival.index);
  PlanLayout* const layout = LayoutOf(arrival.step);
  if (layout != nullptr) return layout->Put(std::move(arrival));
  early_.push_back(std::move(arrival));
  return {};
}

Placed Plan::PutEarly() {
  if (early_.empty()) return {};
  Arrival next = std::move(early_.front());
  early_.pop_front();
  return LayoutOf(next.step)->Put(std::move(next));
}

void Plan::Finish(const std::vector<Arrival>& arrivals) {
  open_ -= static_cast<int64_t>(arrivals.size());
  for (const Arrival& arrival : arrivals) {
    if (!arrival.zeros) steps_.Finish(arrival.index);
  }
}

std::vector<Arrival> Plan::TakeWaiting() {
  std::vector<Arrival> waiting;
  ForEachBucket([&](PlannedBucket* bucket) { bucket->TakeWaiting(&waiting); });
  for (Arrival& each : std::exchange(early_, {})) waiting.push_back(std::move(each));
  return waiting;
}

void Plan::AddWaits(std::vector<PlanWait>* waits) const {
  for (const PlanLayout* layout : {&listed_, observed_ ? &*observed_ : nullptr}) {
    if (layout == nullptr) continue;
    for (const PlannedBucket& bucket : layout->buckets()) {
      const Generation* const oldest = bucket.running() ? nullptr : bucket.waiting();
      if (oldest != nullptr) waits->push_back({this, &bucket, oldest->since_ns, &oldest->reminder});
    }
  }
  if (!early_.empty()) waits->push_back({this, nullptr, early_.front().since_ns, &early_reminder_});
}

std::optional<std::vector<int>> Plan::ObservedOrder() const {
  if (first_step_.size() < spec_.tensors.size()) return std::nullopt;
  const std::vector<Bucket> observed = PlanBuckets(spec_, bucket_bytes_, first_step_);
  const bool fits = listed_.buckets().size() + observed.size() <= static_cast<size_t>(kMaxBuckets);
  return fits && !SameGroups(observed, PlanBuckets(spec_, bucket_bytes_)) ? first_step_ : std::vector<int>();
}

bool Plan::SetOrder(const std::vector<int>& order) {
  if (ordered_) return false;
  if (!order.empty()) {
    const size_t tensors = spec_.tensors.size(), listed = listed_.buckets().size();
    if (!IsPermutation(order, tensors)) return false;
    std::vector<Bucket> buckets = PlanBuckets(spec_, bucket_bytes_, order);
    if (listed + buckets.size() > static_cast<size_t>(kMaxBuckets)) return false;
    observed_.emplace(std::move(buckets), tensors, /*first_operation=*/static_cast<int>(listed), /*first_step=*/1);
  }
  ordered_ = true;
  early_reminder_ = {};
  return true;
}

}  // namespace smddp
