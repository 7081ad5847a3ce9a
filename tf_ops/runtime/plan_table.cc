#include "runtime/plan_table.h"

#include <algorithm>

#include "core/clock.h"
#include "runtime/operation_id.h"
#include "runtime/scalings.h"

namespace smddp {

FusionLimits PlanTable::LimitsFor(const PlanSpec& spec) const {
  if (options_.bucket_bytes != kAutoBytes) return {options_.bucket_bytes};
  return {BucketBytesFor(spec, fabric_.topology.node_count())};
}

Status PlanTable::Add(int id, const std::string& name, const PlanSpec& spec) {
  Plan& plan = plans_[id];
  plan.name = name;
  plan.spec = spec;
  plan.came.resize(spec.tensors.size());
  const int64_t tensors = static_cast<int64_t>(spec.tensors.size());
  PlanLayout listed(PlanBuckets(spec, LimitsFor(spec)), spec.tensors.size(), /*first_operation=*/0);
  const size_t buckets = listed.buckets().size();
  plan.listed_buckets = static_cast<int>(buckets);
  plan.epochs.push_back({std::move(listed), TuneSettings(), /*start=*/0, /*end=*/1, /*left=*/tensors});
  if (buckets > static_cast<size_t>(kMaxBuckets)) {
    plan.decided = true;
    plan.verdict =
        Status(Code::kResourceExhausted, "The gradients of '" + spec.key + "' make " + std::to_string(buckets) +
                                             " fusion buckets; at most " + std::to_string(kMaxBuckets) +
                                             " are possible. Set a larger SMDDP_BUCKET_BYTES (or "
                                             "HOROVOD_FUSION_THRESHOLD).");
  }
  return plan.verdict;
}

void PlanTable::Decide(int id, const Status& verdict) {
  Plan& plan = plans_.at(id);
  plan.decided = true;
  plan.verdict = verdict;
  if (!verdict.ok()) return FailWaiting(&plan, verdict);
  LogAgreed(plan);
  TryStartAll(&plan);
  TryTellOrder(&plan);
}

void PlanTable::TryStartAll(Plan* plan) {
  for (Epoch& epoch : plan->epochs) {
    for (PlannedBucket& bucket : epoch.layout.buckets()) TryStart(plan, &epoch, &bucket);
  }
}

Status PlanTable::CheckArrival(int id, int index, const TensorRef& tensor) const {
  const auto at = plans_.find(id);
  if (at == plans_.end() || index < 0 || index >= static_cast<int>(at->second.spec.tensors.size())) {
    return Status(Code::kFailedPrecondition,
                  "Gradient " + std::to_string(index) +
                      " belongs to a plan that this process does not know: its graph was traced by another one. Trace "
                      "the tf.function (or compile the model) here.");
  }
  const PlanSpec& spec = at->second.spec;
  const TensorSpec& expected = spec.tensors[index];
  if (tensor.dtype == expected.dtype && tensor.elements() == expected.elements()) return Status::Ok();
  return Status(Code::kInvalidArgument, "Gradient " + std::to_string(index) + " of '" + spec.key + "' was planned as " +
                                            DescribeTensor(spec, index) + " but came with " +
                                            std::to_string(tensor.elements()) + " elements of " + NameOf(tensor.dtype) +
                                            ".");
}

Status PlanTable::Arrive(int id, int index, const TensorRef& tensor, DoneCallback done) {
  const Status fits = CheckArrival(id, index, tensor);
  if (!fits.ok()) {
    done(fits);
    return fits;
  }
  Plan& plan = plans_.at(id);
  if (plan.decided && !plan.verdict.ok()) {
    done(plan.verdict);
    return Status::Ok();
  }
  if (trace_.on()) trace_.Record("tensor_ready", plan.spec.key, index, NameOf(plan.spec, index));
  ++waiting_tensors_;
  ++unfinished_;
  const int64_t number = plan.came[index]++;
  plan.steps = std::max(plan.steps, number + 1);
  Put(&plan, index, number, {tensor, std::move(done)}, NowNs());
  if (number == 0) {
    plan.first_step.push_back(index);
    TryTellOrder(&plan);
  }
  return Status::Ok();
}

PlanTable::Epoch* PlanTable::EpochOf(Plan* plan, int64_t number) {
  for (Epoch& epoch : plan->epochs) {
    if (number < epoch.end) return &epoch;
  }
  return nullptr;
}

void PlanTable::Put(Plan* plan, int index, int64_t number, Arrival arrival, int64_t since_ns) {
  Epoch* epoch = EpochOf(plan, number);
  if (epoch == nullptr) {
    plan->held.push_back({index, number, std::move(arrival), since_ns});
    return;
  }
  if (plan->tuner != nullptr && epoch->start > 0) plan->tuner->TensorCame(number - epoch->start, since_ns);
  PlannedBucket& bucket = epoch->layout.Put(index, std::move(arrival));
  if (bucket.generations.back().arrived == static_cast<int>(bucket.bucket.slots.size())) {
    trace_.Record("bucket_complete", plan->spec.key, bucket.index);
  }
  TryStart(plan, epoch, &bucket);
}

// --- Buckets ---

void PlanTable::TryStart(Plan* plan, Epoch* epoch, PlannedBucket* bucket) {
  if (!plan->decided || !plan->verdict.ok() || !bucket->complete() || !KnowsWay(plan, *bucket)) return;
  if (!plan->busy.insert(bucket->operation).second) return;

  auto arrivals = std::make_shared<std::vector<Arrival>>(std::move(bucket->generations.front().arrivals));
  const int64_t submitted_ns = bucket->generations.front().since_ns;
  bucket->generations.pop_front();
  waiting_tensors_ -= static_cast<int64_t>(arrivals->size());

  std::vector<Piece> pieces;
  for (const Arrival& arrival : *arrivals) {
    pieces.push_back({arrival.tensor.input, arrival.tensor.output, arrival.tensor.elements()});
  }
  const Scalings scalings =
      ScalingsFor(plan->spec.op, plan->spec.prescale, plan->spec.postscale, fabric_.topology.size());
  auto view = std::make_shared<FusedView>(bucket->bucket.dtype, bucket->bucket.wire_dtype, pieces, scalings.before,
                                          scalings.after, fabric_.compute);
  const auto times = trace_.on() ? std::make_shared<StageTimes>() : nullptr;
  const FusedCall call = {PlannedOperation(plan->number, bucket->operation), view.get(), scalings.op, times.get()};

  trace_.Record("bucket_start", plan->spec.key, bucket->index);
  RecordTensors("tensor_start", *plan, *bucket);
  RunningTask running;
  // Making the task cannot fail.
  running.task = std::move(*verifier_.Begin(Watched(*plan, *bucket, *arrivals), call.operation, [&] {
    return Result<TaskPtr>(BeginBucket(*plan, *epoch, call, *arrivals));
  }));
  running.keep = view;
  running.submitted_ns = submitted_ns;
  running.name = "gradient bucket " + std::to_string(bucket->index) + " of '" + plan->spec.key + "'";
  running.done = [this, plan, epoch, bucket, arrivals, times](const Status& status) {
    RecordDone(*plan, *bucket, times.get());
    Finish(plan, epoch, bucket, std::move(*arrivals), status);
  };
  run_(std::move(running));
}

VerificationPtr PlanTable::Watched(const Plan& plan, const PlannedBucket& bucket,
                                   const std::vector<Arrival>& arrivals) const {
  const auto on_gpu = [](const Arrival& arrival) { return arrival.tensor.device != nullptr; };
  if (!verifier_.on() || std::any_of(arrivals.begin(), arrivals.end(), on_gpu)) return nullptr;  // docs/reliability.md
  VerifiedCall call;
  call.kind = RequestKind::kAllreduce;
  call.name = "gradient bucket " + std::to_string(bucket.index) + " of '" + plan.spec.key + "'";
  for (size_t i = 0; i < arrivals.size(); ++i) {
    call.tensors.push_back(arrivals[i].tensor);
    call.tensor_names.push_back(NameOf(plan.spec, bucket.bucket.slots[i].tensor));
  }
  call.op = plan.spec.op;
  call.prescale = plan.spec.prescale;
  call.postscale = plan.spec.postscale;
  call.wire_dtype = plan.spec.wire_dtype;
  return verifier_.Watch(&call);
}

// --- For the diary ---

void PlanTable::RecordTensors(const char* what, const Plan& plan, const PlannedBucket& bucket) {
  if (!trace_.on()) return;
  for (const BucketSlot& slot : bucket.bucket.slots) {
    trace_.Record(what, plan.spec.key, slot.tensor, NameOf(plan.spec, slot.tensor));
  }
}

void PlanTable::RecordDone(const Plan& plan, const PlannedBucket& bucket, const StageTimes* times) {
  for (int stage = 0; times != nullptr && trace_.on() && stage < StageTimes::kStages; ++stage) {
    if (times->first_ns[stage] == 0) continue;
    const char* name = StageTimes::NameOf(stage);
    trace_.RecordAt(times->first_ns[stage], "stage_begin", plan.spec.key, bucket.index, name);
    trace_.RecordAt(times->last_ns[stage], "stage_end", plan.spec.key, bucket.index, name);
  }
  trace_.Record("bucket_done", plan.spec.key, bucket.index);
  RecordTensors("tensor_done", plan, bucket);
}

const AllreduceAlgorithm& PlanTable::RailFor(const Plan& plan, const Epoch& epoch, int64_t elements, DType wire) const {
  const bool tuned = epoch.settings.algorithm != kAutoAlgorithm && !IsHalf(wire);
  if (tuned) return *Algorithms()[epoch.settings.algorithm];
  const bool places_vary = plan.listed_buckets > 1;  // on every rank alike, told or not
  return RailAlgorithmFor(fabric_, elements, wire, places_vary);
}

void PlanTable::Finish(Plan* plan, Epoch* epoch, PlannedBucket* bucket, std::vector<Arrival> arrivals,
                       const Status& status) {
  plan->busy.erase(bucket->operation);
  if (status.ok()) ++buckets_done_;
  unfinished_ -= static_cast<int64_t>(arrivals.size());
  for (Arrival& arrival : arrivals) arrival.done(status);
  if (!status.ok()) return;
  for (Epoch& other : plan->epochs) {
    PlannedBucket* next = other.layout.WithOperation(bucket->operation);
    if (next != nullptr) TryStart(plan, &other, next);
  }
  Count(plan, epoch, bucket);
}

// One more reduction of `bucket` is done. Last, because epochs may end and begin.
void PlanTable::Count(Plan* plan, Epoch* epoch, PlannedBucket* bucket) {
  if (epoch->left < 0) return;
  epoch->left -= static_cast<int64_t>(bucket->bucket.slots.size());
  if (plan->tuner != nullptr && epoch->start > 0) plan->tuner->BucketDone(bucket->finished, NowNs());
  ++bucket->finished;
  while (plan->epochs.size() > 1 && plan->epochs.front().left == 0) plan->epochs.pop_front();
  TryTellNext(plan);
}

void PlanTable::FailWaiting(Plan* plan, const Status& why) {
  std::vector<Arrival> waiting;
  for (Epoch& epoch : plan->epochs) {
    for (PlannedBucket& bucket : epoch.layout.buckets()) {
      for (Generation& generation : bucket.generations) {
        for (Arrival& arrival : generation.arrivals) {
          if (arrival.done) waiting.push_back(std::move(arrival));
        }
      }
      bucket.generations.clear();
    }
  }
  for (Held& held : plan->held) waiting.push_back(std::move(held.arrival));
  plan->held.clear();
  waiting_tensors_ -= static_cast<int64_t>(waiting.size());
  unfinished_ -= static_cast<int64_t>(waiting.size());
  for (const Arrival& arrival : waiting) arrival.done(why);
}

void PlanTable::FailAll(const Status& why) {
  for (auto& [id, plan] : plans_) FailWaiting(&plan, why);
}

}  // namespace smddp
