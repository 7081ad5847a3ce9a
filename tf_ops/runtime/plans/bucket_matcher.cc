#include "runtime/plans/bucket_matcher.h"

#include <string>

#include "core/clock.h"

namespace smddp {
namespace {

Status Check(const Plan* plan, int index, const TensorRef& tensor) {
  if (plan == nullptr || index < 0 || index >= static_cast<int>(plan->spec().tensors.size())) {
    return Status(Reason::kBadState, "Gradient ", index,
                  " belongs to a plan that this process does not know: its graph was traced by another process. Trace "
                  "the tf.function (or compile the model) in this one.");
  }
  const PlanSpec& spec = plan->spec();
  const TensorSpec& expected = spec.tensors[index];
  const bool same_parts = tensor.parting.mode == spec.parting.mode && tensor.parting.parts == spec.parting.parts;
  if (same_parts && tensor.dtype == expected.dtype && tensor.elements() == expected.elements()) return Status::Ok();
  return Status(Reason::kBadArgument, "Gradient ", index, " of '", spec.key, "' was planned as ",
                DescribeTensor(spec, index), " but arrived with ", tensor.elements(), " elements of ",
                NameOf(tensor.dtype), same_parts ? "." : ", with other parts.");
}

Status JoinedBefore(const Plan& plan, int index) {
  return Status(
      Reason::kBadState, "Gradient ", index, " of '", plan.spec().key,
      "' arrived after hvd.join, which has contributed zeros for it. Call hvd.join when the last step has ended.");
}

Status Overlaps(const Plan& plan, int index) {
  const std::string name = NameOf(plan.spec(), index);
  return Status(Reason::kBadState, "Gradient ", index, name.empty() ? "" : " (" + name + ")", " of '", plan.spec().key,
                "' arrived again while its last reduction was under way: two runs of one training step, or of two with "
                "equal gradients, overlap (in two threads?), and the ranks cannot tell which gradients belong "
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
  if (plan->agreed().refused()) {
    done(plan->agreed().verdict());
    return Status::Ok();
  }
  if (keeps(plan)) {
    kept_.push_back({where, tensor, std::move(done)});
    ++waiting_;
    ++unfinished_;
    return Status::Ok();
  }
  PlanSteps& steps = plan->steps();
  const PlanSteps::Arrival arrival = steps.Take(index, where.run);
  if (arrival == PlanSteps::Arrival::kTooLate) {
    const Status given_up = steps.VoidStatus(steps.begun());
    done(given_up.ok() ? JoinedBefore(*plan, index) : given_up);
    return Status::Ok();
  }
  if (arrival == PlanSteps::Arrival::kOverlaps) {
    const Status overlaps = Overlaps(*plan, index);
    done(overlaps);
    return overlaps;
  }
  Trace& trace = bus_.trace();
  if (trace.on()) trace.Record(TraceWhat::kTensorReady, plan->spec().key, index, NameOf(plan->spec(), index));
  Place(plan, {tensor, std::move(done), index, steps.Of(index) - 1, /*zeros=*/false});
  return Status::Ok();
}

void BucketMatcher::PlaceZeros(Plan* plan, int index, int64_t step) {
  std::shared_ptr<void> keep;
  const TensorSpec& spec = plan->spec().tensors[index];
  Result<TensorRef> tensor = zeros_.Tensor(spec.dtype, spec.shape, &keep);
  if (!tensor.ok()) return bus_.Fail(tensor.status());
  ++zeros_in_flight_;
  Place(plan, {std::move(*tensor), [this, keep](const Status&) { --zeros_in_flight_; }, index, step, /*zeros=*/true});
}

// A tensor whose step is known, or zeros in its place.
void BucketMatcher::Place(Plan* plan, Arrival arrival) {
  arrival.since_ns = NowNs();
  if (times_.Arrived(arrival.since_ns)) RecordStep(TraceWhat::kStepGradients, *plan, arrival.since_ns);
  ++waiting_;
  ++unfinished_;
  TryLaunch(plan, plan->Put(std::move(arrival)));
}

void BucketMatcher::PlaceEarly(Plan* plan) {
  // Where a launch fails the session, FailWaiting takes the rest.
  for (Placed next = plan->PutEarly(); next.bucket != nullptr; next = plan->PutEarly()) TryLaunch(plan, next);
}

void BucketMatcher::LaunchComplete(Plan* plan) {
  plan->ForEachBucket([&](PlannedBucket* bucket) { TryLaunch(plan, bucket); });
}

void BucketMatcher::TryLaunch(Plan* plan, Placed placed) {
  if (placed.bucket == nullptr) return;
  if (placed.completes) bus_.trace().Record(TraceWhat::kBucketComplete, plan->spec().key, placed.bucket->index());
  TryLaunch(plan, placed.bucket);
}

void BucketMatcher::TryLaunch(Plan* plan, PlannedBucket* bucket) {
  if (!plan->agreed().reached() || !bucket->complete() || !launcher_.CanLaunch(*plan, *bucket)) return;
  // Asked last: CanLaunch may start the agreement, be answered immediately, and thereby launch this bucket.
  if (bucket->running()) return;
  Generation next = bucket->Begin();
  auto arrivals = std::make_shared<std::vector<Arrival>>(std::move(next.arrivals));
  waiting_ -= static_cast<int64_t>(arrivals->size());
  launcher_.Launch(*plan, *bucket, arrivals, next.since_ns,
                   [this, plan, bucket, arrivals](const Status& status) { Finish(plan, bucket, *arrivals, status); });
}

void BucketMatcher::Finish(Plan* plan, PlannedBucket* bucket, const std::vector<Arrival>& arrivals,
                           const Status& status) {
  bucket->End();
  if (status.ok()) ++buckets_done_;
  unfinished_ -= static_cast<int64_t>(arrivals.size());
  const int64_t now_ns = NowNs();
  if (unfinished_ == 0 && times_.Ended(plan->steps().complete(), now_ns)) {
    RecordStep(TraceWhat::kStepDone, *plan, now_ns);
  }
  Answer(plan, arrivals, status);
  if (status.ok()) TryLaunch(plan, bucket);
}

void BucketMatcher::RecordStep(TraceWhat what, const Plan& plan, int64_t now_ns) {
  Trace& trace = bus_.trace();
  if (trace.on()) trace.RecordAt(now_ns, what, plan.spec().key, static_cast<int>(plan.steps().begun()), "");
}

// `arrivals` of one step.
void BucketMatcher::Answer(Plan* plan, const std::vector<Arrival>& arrivals, const Status& status) {
  const Status given_up = plan->steps().VoidStatus(arrivals.empty() ? 0 : arrivals.front().step + 1);
  plan->Finish(arrivals);
  for (const Arrival& arrival : arrivals) arrival.done(status.ok() ? given_up : status);
}

void BucketMatcher::FailWaiting(Plan* plan, const Status& why) {
  const std::vector<Arrival> waiting = plan->TakeWaiting();
  waiting_ -= static_cast<int64_t>(waiting.size());
  unfinished_ -= static_cast<int64_t>(waiting.size());
  if (unfinished_ == 0) times_.Ended(/*complete=*/false, NowNs());
  Answer(plan, waiting, why);
  if (!keeps(plan)) return;
  for (const KeptArrival& kept : TakeKept()) kept.done(why);
}

std::vector<KeptArrival> BucketMatcher::TakeKept() {
  kept_plan_ = nullptr;
  std::vector<KeptArrival> kept = std::exchange(kept_, {});
  waiting_ -= static_cast<int64_t>(kept.size());
  unfinished_ -= static_cast<int64_t>(kept.size());
  return kept;
}

}  // namespace smddp
