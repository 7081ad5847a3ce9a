#include "runtime/planned/bucket_matcher.h"

#include <string>
#include <utility>

#include "core/clock.h"

namespace smddp {
namespace {

Status Check(const Plan* plan, int index, const TensorRef& tensor) {
  if (plan == nullptr || index < 0 || index >= static_cast<int>(plan->spec.tensors.size())) {
    return Status(Reason::kBadState, "Gradient " + std::to_string(index) +
                                         " belongs to a plan that this process does not know: its graph was traced by "
                                         "another process. Trace the tf.function (or compile the model) in this one.");
  }
  const PlanSpec& spec = plan->spec;
  const TensorSpec& expected = spec.tensors[index];
  const bool same_parts = tensor.parting.mode == spec.parting.mode && tensor.parting.parts == spec.parting.parts;
  if (same_parts && tensor.dtype == expected.dtype && tensor.elements() == expected.elements()) return Status::Ok();
  return Status(Reason::kBadArgument, "Gradient " + std::to_string(index) + " of '" + spec.key + "' was planned as " +
                                          DescribeTensor(spec, index) + " but arrived with " +
                                          std::to_string(tensor.elements()) + " elements of " + NameOf(tensor.dtype) +
                                          (same_parts ? "." : ", with other parts."));
}

Status JoinedBefore(const Plan& plan, int index) {
  return Status(Reason::kBadState, "Gradient " + std::to_string(index) + " of '" + plan.spec.key +
                                       "' arrived after hvd.join, which has contributed zeros for it. Call hvd.join "
                                       "when the last step has ended.");
}

Status Overlaps(const Plan& plan, int index) {
  const std::string name = NameOf(plan.spec, index);
  return Status(Reason::kBadState,
                "Gradient " + std::to_string(index) + (name.empty() ? "" : " (" + name + ")") + " of '" +
                    plan.spec.key +
                    "' arrived again while its last reduction was under way: two runs of one training step, or of two "
                    "with equal gradients, overlap (in two threads?), and the ranks cannot tell which gradients belong "
                    "together. Run them one after the other, or both from one tf.function.");
}

}  // namespace

Status BucketMatcher::Arrive(Plan* plan, const PlannedTensor& where, const TensorRef& tensor, DoneCallback done) {
  const int index = where.index;
  const Status fits = Check(plan, index, tensor);
  if (!fits.ok()) {
    done(fits);
    return fits;
  }
  if (plan->agreed.decided && plan->agreed.refused()) {
    done(plan->agreed.verdict);
    return Status::Ok();
  }
  if (plan->keeping) {
    plan->kept.push_back({where, tensor, std::move(done)});
    ++waiting_;
    ++unfinished_;
    return Status::Ok();
  }
  switch (plan->steps.Take(index, where.run)) {
    case PlanSteps::Arrival::kTaken:
      break;
    case PlanSteps::Arrival::kTooLate: {
      const Status given_up = plan->steps.VoidStatus(plan->steps.begun());
      done(given_up.ok() ? JoinedBefore(*plan, index) : given_up);
      return Status::Ok();
    }
    case PlanSteps::Arrival::kOverlaps: {
      const Status overlaps = Overlaps(*plan, index);
      done(overlaps);
      return overlaps;
    }
  }
  if (bus_.trace().on()) bus_.trace().Record(TraceWhat::kTensorReady, plan->spec.key, index, NameOf(plan->spec, index));
  Place(plan, {tensor, std::move(done), index, plan->steps.Of(index) - 1, /*zeros=*/false});
  return Status::Ok();
}

void BucketMatcher::PlaceZeros(Plan* plan, int index, int64_t step) {
  std::shared_ptr<void> keep;
  const TensorSpec& spec = plan->spec.tensors[index];
  Result<TensorRef> tensor = zeros_.Tensor(spec.dtype, spec.shape, &keep);
  if (!tensor.ok()) return bus_.Fail(tensor.status());
  ++zeros_in_flight_;
  Place(plan, {std::move(*tensor), [this, keep](const Status&) { --zeros_in_flight_; }, index, step, /*zeros=*/true});
}

// A tensor whose step is known, or zeros in its place.
void BucketMatcher::Place(Plan* plan, Arrival arrival) {
  const int64_t now_ns = NowNs();
  times_.Arrived(now_ns);
  ++waiting_;
  ++unfinished_;
  ++plan->open;
  plan->last_use_ns = now_ns;
  if (arrival.step == 0) plan->first_step.push_back(arrival.index);
  Put(plan, std::move(arrival), now_ns);
}

void BucketMatcher::Put(Plan* plan, Arrival arrival, int64_t since_ns) {
  PlanLayout* const layout = plan->LayoutOf(arrival.step);
  if (layout == nullptr) {
    plan->early.push_back({std::move(arrival), since_ns});
    return;
  }
  bool completes = false;
  PlannedBucket& bucket = layout->Put(std::move(arrival), since_ns, &completes);
  if (completes) bus_.trace().Record(TraceWhat::kBucketComplete, plan->spec.key, bucket.index);
  TryLaunch(plan, &bucket);
}

void BucketMatcher::PlaceEarly(Plan* plan) {
  plan->early_reminder = {};
  while (!plan->early.empty()) {
    const Plan::EarlyArrival next = std::move(plan->early.front());
    plan->early.pop_front();
    Put(plan, next.arrival, next.since_ns);  // where that fails the session, FailWaiting takes the rest
  }
}

void BucketMatcher::LaunchComplete(Plan* plan) {
  plan->ForEachBucket([&](PlannedBucket* bucket) { TryLaunch(plan, bucket); });
}

void BucketMatcher::TryLaunch(Plan* plan, PlannedBucket* bucket) {
  if (!plan->agreed.decided || plan->agreed.refused() || !bucket->complete() || !launcher_.CanLaunch(*plan, *bucket))
    return;
  // Evaluated last: CanLaunch may start the agreement, be answered immediately, and thereby launch this bucket.
  if (std::exchange(bucket->running, true)) return;
  Generation& next = bucket->generations.front();
  auto arrivals = std::make_shared<std::vector<Arrival>>(std::move(next.arrivals));
  const int64_t since_ns = next.since_ns;
  bucket->generations.pop_front();
  ++bucket->next_step;
  waiting_ -= static_cast<int64_t>(arrivals->size());
  launcher_.Launch(*plan, *bucket, arrivals, since_ns,
                   [this, plan, bucket, arrivals](const Status& status) { Finish(plan, bucket, *arrivals, status); });
}

void BucketMatcher::Finish(Plan* plan, PlannedBucket* bucket, const std::vector<Arrival>& arrivals,
                           const Status& status) {
  bucket->running = false;
  if (status.ok()) ++buckets_done_;
  unfinished_ -= static_cast<int64_t>(arrivals.size());
  if (unfinished_ == 0) times_.Ended(plan->steps.complete(), NowNs());
  Answer(plan, arrivals, status);
  if (status.ok()) TryLaunch(plan, bucket);
}

// `arrivals` of one step.
void BucketMatcher::Answer(Plan* plan, const std::vector<Arrival>& arrivals, const Status& status) {
  const Status given_up = plan->steps.VoidStatus(arrivals.empty() ? 0 : arrivals.front().step + 1);
  plan->open -= static_cast<int64_t>(arrivals.size());
  for (const Arrival& arrival : arrivals) {
    if (!arrival.zeros) plan->steps.Finish(arrival.index);
    arrival.done(status.ok() ? given_up : status);
  }
}

void BucketMatcher::FailWaiting(Plan* plan, const Status& why) {
  std::vector<Arrival> waiting;
  plan->ForEachBucket([&](PlannedBucket* bucket) {
    for (Generation& generation : bucket->generations) {
      for (Arrival& arrival : generation.arrivals) {
        if (arrival.done) waiting.push_back(std::move(arrival));
      }
    }
    bucket->generations.clear();
  });
  for (Plan::EarlyArrival& each : std::exchange(plan->early, {})) waiting.push_back(std::move(each.arrival));
  waiting_ -= static_cast<int64_t>(waiting.size());
  unfinished_ -= static_cast<int64_t>(waiting.size());
  if (unfinished_ == 0) times_.Ended(/*complete=*/false, NowNs());
  Answer(plan, waiting, why);
  for (const Plan::KeptArrival& kept : TakeKept(plan)) kept.done(why);
}

std::vector<Plan::KeptArrival> BucketMatcher::TakeKept(Plan* plan) {
  plan->keeping = false;
  std::vector<Plan::KeptArrival> kept = std::exchange(plan->kept, {});
  waiting_ -= static_cast<int64_t>(kept.size());
  unfinished_ -= static_cast<int64_t>(kept.size());
  return kept;
}

}  // namespace smddp
