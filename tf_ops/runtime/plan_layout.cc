#include "runtime/plan_layout.h"

#include "core/clock.h"

namespace smddp {
namespace {

Generation& GenerationFor(PlannedBucket* bucket, int slot) {
  for (Generation& generation : bucket->generations) {
    if (!generation.arrivals[slot].done) return generation;
  }
  Generation& added = bucket->generations.emplace_back();
  added.arrivals.resize(bucket->bucket.slots.size());
  added.since_ns = NowNs();
  return added;
}

}  // namespace

PlanLayout::PlanLayout(std::vector<Bucket> buckets, size_t tensors, int first_operation)
    : first_operation_(first_operation), place_of_tensor_(tensors) {
  for (Bucket& bucket : buckets) {
    const int number = static_cast<int>(buckets_.size());
    for (size_t slot = 0; slot < bucket.slots.size(); ++slot) {
      place_of_tensor_[bucket.slots[slot].tensor] = {number, static_cast<int>(slot)};
    }
    PlannedBucket& added = buckets_.emplace_back();
    added.bucket = std::move(bucket);
    added.index = number;
    added.operation = first_operation + number;
  }
}

PlannedBucket& PlanLayout::Put(int tensor, Arrival arrival) {
  const auto [number, slot] = place_of_tensor_[tensor];
  PlannedBucket& bucket = buckets_[number];
  Generation& generation = GenerationFor(&bucket, slot);
  generation.arrivals[slot] = std::move(arrival);
  ++generation.arrived;
  return bucket;
}

PlannedBucket* PlanLayout::WithOperation(int operation) {
  const int index = operation - first_operation_;
  return index >= 0 && index < static_cast<int>(buckets_.size()) ? &buckets_[index] : nullptr;
}

}  // namespace smddp
