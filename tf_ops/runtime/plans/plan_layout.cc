#include "runtime/plans/plan_layout.h"

namespace smddp {
namespace {

Generation& GenerationFor(PlannedBucket* bucket, int64_t step, int64_t now_ns) {
  auto at = bucket->generations.begin();
  while (at != bucket->generations.end() && at->step < step) ++at;
  if (at != bucket->generations.end() && at->step == step) return *at;
  Generation& added = *bucket->generations.emplace(at);
  added.step = step;
  added.arrivals.resize(bucket->bucket.slots.size());
  added.since_ns = now_ns;
  return added;
}

}  // namespace

PlanLayout::PlanLayout(std::vector<Bucket> buckets, size_t tensors, int first_operation, int64_t first_step)
    : place_of_tensor_(tensors) {
  for (Bucket& bucket : buckets) {
    const int number = static_cast<int>(buckets_.size());
    for (size_t slot = 0; slot < bucket.slots.size(); ++slot) {
      place_of_tensor_[bucket.slots[slot].tensor] = {number, static_cast<int>(slot)};
    }
    PlannedBucket& added = buckets_.emplace_back();
    added.bucket = std::move(bucket);
    if (added.bucket.quantised) added.errors = std::make_unique<RoundingErrors>();
    added.index = number;
    added.operation = first_operation + number;
    added.next_step = first_step;
  }
}

PlannedBucket& PlanLayout::Put(Arrival arrival, int64_t now_ns, bool* completes) {
  const auto [number, slot] = place_of_tensor_[arrival.index];
  PlannedBucket& bucket = buckets_[number];
  Generation& generation = GenerationFor(&bucket, arrival.step, now_ns);
  generation.arrivals[slot] = std::move(arrival);
  ++generation.arrived;
  *completes = bucket.complete(generation);
  return bucket;
}

}  // namespace smddp
