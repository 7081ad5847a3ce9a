#include "runtime/plans/bucket_launcher.h"

#include <algorithm>
#include <string>
#include <utility>

#include "collectives/rail/quantised_exchange.h"
#include "compute/fused_view.h"
#include "runtime/control/operation_id.h"

namespace smddp {
namespace {

bool IsOnDevice(const Arrival& arrival) { return arrival.tensor.device != nullptr; }

std::vector<TensorRef> TensorsOf(const std::vector<Arrival>& arrivals) {
  std::vector<TensorRef> tensors;
  for (const Arrival& arrival : arrivals) tensors.push_back(arrival.tensor);
  return tensors;
}

std::string NameOf(const Plan& plan, const PlannedBucket& bucket) {
  return "gradient bucket " + std::to_string(bucket.index()) + " of '" + plan.spec().key + "'";
}

}  // namespace

bool BucketLauncher::CanLaunch(const Plan& plan, const PlannedBucket& bucket) {
  if (!plan.agreed().devices_possible()) return true;
  return device_paths_.IsAgreed(plan.name(), [&] { return TensorsOf(bucket.waiting()->arrivals); });
}

const AllreduceAlgorithm& BucketLauncher::RailFor(const Plan& plan, const Bucket& bucket, int64_t elements) const {
  if (bucket.quantised) return QuantisedExchange();
  return RailAlgorithmFor(fabric_, elements, bucket.wire_dtype, plan.places_vary());
}

void BucketLauncher::Launch(const Plan& plan, const PlannedBucket& bucket,
                            std::shared_ptr<std::vector<Arrival>> arrivals, int64_t since_ns, DoneCallback done) {
  const Scalings scalings = ScalingsFor(plan.spec(), fabric_.topology.size());
  const std::shared_ptr<FusedView> view = ViewOf(plan.spec().parting, bucket.bucket(), *arrivals, scalings);
  const auto times = bus_.trace().on() ? std::make_shared<StageTimes>() : nullptr;
  FusedCall call = {PlannedOperation(plan.agreed().number(), bucket.operation()), view.get(), scalings.op, times.get()};
  call.errors = bucket.errors();

  bus_.trace().Record(TraceWhat::kBucketStart, plan.spec().key, bucket.index());
  RecordTensors(TraceWhat::kTensorStart, plan, bucket);
  RunningTask running;
  // Making the task cannot fail.
  running.task = std::move(*verifier_.Begin(Describe(plan, bucket, *arrivals), call.operation, [&](VerifiedCall*) {
    return Result<TaskPtr>(Begin(plan, bucket, call, *arrivals));
  }));
  running.keep = view;
  running.submitted_ns = since_ns;
  running.name = NameOf(plan, bucket);
  running.planned_operation = call.operation;
  running.done = [this, &plan, &bucket, times, done = std::move(done)](const Status& status) {
    RecordDone(plan, bucket, times.get());
    done(status);
  };
  bus_.Run(std::move(running));
}

std::unique_ptr<FusedView> BucketLauncher::ViewOf(const Parting& parting, const Bucket& bucket,
                                                  const std::vector<Arrival>& arrivals,
                                                  const Scalings& scalings) const {
  std::vector<Piece> pieces;
  for (const Arrival& arrival : arrivals) {
    pieces.push_back({arrival.tensor.input, arrival.tensor.output, arrival.tensor.elements()});
  }
  if (parting.whole()) {
    return std::make_unique<FusedView>(bucket.dtype, bucket.wire_dtype, pieces, scalings.before, scalings.after,
                                       fabric_.compute);
  }
  const auto part_of = [&](size_t tensor, int place) -> Range {
    const int64_t length = parting.Length(pieces[tensor].elements);
    return {place * length, (place + 1) * length};
  };
  return MakePartedView(fabric_, {parting, part_of, /*padded=*/true}, pieces, bucket.dtype, bucket.wire_dtype,
                        scalings.before, scalings.after);
}

TaskPtr BucketLauncher::Begin(const Plan& plan, const PlannedBucket& bucket, const FusedCall& call,
                              const std::vector<Arrival>& arrivals) {
  const AllreduceAlgorithm& rail = RailFor(plan, bucket.bucket(), call.view->elements());
  if (!plan.agreed().devices_possible() && std::none_of(arrivals.begin(), arrivals.end(), IsOnDevice)) {
    return HierarchicalAllreduce(fabric_, rail, call);
  }
  return device_paths_.BeginBucket(plan.name(), rail, call, TensorsOf(arrivals));
}

std::optional<VerifiedCall> BucketLauncher::Describe(const Plan& plan, const PlannedBucket& bucket,
                                                     const std::vector<Arrival>& arrivals) const {
  // The ranks must agree: one that has joined has no tensors on a GPU.
  if (!verifier_.on() || plan.agreed().devices_possible() || !plan.spec().parting.whole()) return std::nullopt;
  if (std::any_of(arrivals.begin(), arrivals.end(), IsOnDevice)) return std::nullopt;
  VerifiedCall call(RequestKind::kAllreduce);
  call.SetArithmetic(plan.spec());
  call.name = NameOf(plan, bucket);
  for (size_t i = 0; i < arrivals.size(); ++i) {
    call.tensors.push_back(arrivals[i].tensor);
    call.tensor_names.push_back(smddp::NameOf(plan.spec(), bucket.bucket().slots[i].tensor));
  }
  return call;
}

void BucketLauncher::RecordTensors(TraceWhat what, const Plan& plan, const PlannedBucket& bucket) {
  if (!bus_.trace().on()) return;
  for (const BucketSlot& slot : bucket.bucket().slots) {
    bus_.trace().Record(what, plan.spec().key, slot.tensor, smddp::NameOf(plan.spec(), slot.tensor));
  }
}

void BucketLauncher::RecordDone(const Plan& plan, const PlannedBucket& bucket, const StageTimes* times) {
  Trace& trace = bus_.trace();
  for (int stage = 0; times != nullptr && trace.on() && stage < StageTimes::kStages; ++stage) {
    if (times->first_ns[stage] == 0) continue;
    const char* name = StageTimes::NameOf(stage);
    trace.RecordAt(times->first_ns[stage], TraceWhat::kStageBegin, plan.spec().key, bucket.index(), name);
    trace.RecordAt(times->last_ns[stage], TraceWhat::kStageEnd, plan.spec().key, bucket.index(), name);
  }
  trace.Record(TraceWhat::kBucketDone, plan.spec().key, bucket.index());
  RecordTensors(TraceWhat::kTensorDone, plan, bucket);
}

}  // namespace smddp
