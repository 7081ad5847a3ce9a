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

PlanTable::Plan* PlanTable::PlanOf(const PlannedTensor& where) const {
  const auto at = local_.find({where.plan, where.site});
  return at == local_.end() ? nullptr : at->second;
}

bool PlanTable::Knows(const PlannedTensor& where) const {
  const Plan* const plan = PlanOf(where);
  return plan != nullptr && (plan->verdict.ok() || where.run == 0 || where.run == plan->asked_by);
}

bool PlanTable::Add(const PlannedTensor& where, const std::string& name, const PlanSpec& spec) {
  const auto at = plans_.find(name);
  const bool known = at != plans_.end() && at->second.verdict.ok();
  Plan& plan = plans_[name];
  local_[{where.plan, where.site}] = &plan;
  if (known) {
    if (plan.way == Way::kAsked) plan.way = Way::kUnknown;  // by the others; now also by this rank
  } else {
    Make(&plan, name, spec);
  }
  plan.asked_by = where.run;
  return !known;
}

void PlanTable::Make(Plan* made, const std::string& name, const PlanSpec& spec) {
  Plan& plan = *made;
  plan = Plan();
  plan.name = name;
  plan.spec = spec;
  plan.steps = PlanSteps(spec.tensors.size());
  known_ = static_cast<int64_t>(plans_.size());
  const auto given_up = void_.extract(name);
  if (!given_up.empty()) {
    for (const auto& [step, why] : given_up.mapped()) plan.steps.Void(step, why);
  }
  const int64_t tensors = static_cast<int64_t>(spec.tensors.size());
  PlanLayout listed(PlanBuckets(spec, LimitsFor(spec)), spec.tensors.size(), /*first_operation=*/0, /*first_step=*/0);
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
}

void PlanTable::Decide(const std::string& name, const Status& verdict) {
  Plan& plan = plans_.at(name);
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

Status PlanTable::CheckArrival(const PlannedTensor& where, const TensorRef& tensor) const {
  const Plan* const plan = PlanOf(where);
  const int index = where.index;
  if (plan == nullptr || index < 0 || index >= static_cast<int>(plan->spec.tensors.size())) {
    return Status(Code::kFailedPrecondition,
                  "Gradient " + std::to_string(index) +
                      " belongs to a plan that this process does not know: its graph was traced by another one. Trace "
                      "the tf.function (or compile the model) here.");
  }
  const PlanSpec& spec = plan->spec;
  const TensorSpec& expected = spec.tensors[index];
  if (tensor.dtype == expected.dtype && tensor.elements() == expected.elements()) return Status::Ok();
  return Status(Code::kInvalidArgument, "Gradient " + std::to_string(index) + " of '" + spec.key + "' was planned as " +
                                            DescribeTensor(spec, index) + " but came with " +
                                            std::to_string(tensor.elements()) + " elements of " + NameOf(tensor.dtype) +
                                            ".");
}

Status PlanTable::Arrive(const PlannedTensor& where, const TensorRef& tensor, DoneCallback done) {
  Status fits = CheckArrival(where, tensor);
  Plan* const plan = PlanOf(where);
  if (fits.ok() && plan->decided && !plan->verdict.ok()) {
    done(plan->verdict);
    return Status::Ok();
  }
  if (fits.ok() && plan->keeping) {
    plan->waiting.push_back({where, tensor, std::move(done)});
    ++waiting_tensors_;
    ++unfinished_;
    return Status::Ok();
  }
  if (fits.ok()) {
    plan->last_use_ns = NowNs();
    switch (plan->steps.Take(where.index, where.run)) {
      case PlanSteps::Arrival::kTaken:
        break;
      case PlanSteps::Arrival::kTooLate: {
        const Status given_up = plan->steps.VoidStatus(plan->steps.begun());
        done(given_up.ok() ? JoinedBefore(*plan, where.index) : given_up);
        return Status::Ok();
      }
      case PlanSteps::Arrival::kOverlaps:
        fits = Overlaps(*plan, where.index);
    }
  }
  if (!fits.ok()) {
    done(fits);
    return fits;
  }
  if (trace_.on()) trace_.Record("tensor_ready", plan->spec.key, where.index, NameOf(plan->spec, where.index));
  Place(plan, {tensor, std::move(done), where.index, plan->steps.Of(where.index) - 1, /*zeros=*/false});
  return Status::Ok();
}

Status PlanTable::JoinedBefore(const Plan& plan, int index) {
  return Status(Code::kFailedPrecondition, "Gradient " + std::to_string(index) + " of '" + plan.spec.key +
                                               "' came after hvd.join, which has put zeros in its place. Call hvd.join "
                                               "when the last step has ended.");
}

Status PlanTable::Overlaps(const Plan& plan, int index) {
  const std::string name = NameOf(plan.spec, index);
  return Status(Code::kFailedPrecondition,
                "Gradient " + std::to_string(index) + (name.empty() ? "" : " (" + name + ")") + " of '" +
                    plan.spec.key +
                    "' came again while its last reduction was under way: two runs of one training step, or of two "
                    "with equal gradients, overlap (in two threads?), and the ranks cannot tell which gradients belong "
                    "together. Run them one after the other, or both from one tf.function.");
}

// A tensor that has its step, or zeros in its place.
void PlanTable::Place(Plan* plan, Arrival arrival) {
  ++waiting_tensors_;
  ++unfinished_;
  ++plan->open;
  const bool first = arrival.step == 0;
  const int index = arrival.index;
  Put(plan, std::move(arrival), NowNs());
  if (!first) return;
  plan->first_step.push_back(index);
  TryTellOrder(plan);
}

PlanTable::Epoch* PlanTable::EpochOf(Plan* plan, int64_t number) {
  for (Epoch& epoch : plan->epochs) {
    if (number < epoch.end) return &epoch;
  }
  return nullptr;
}

void PlanTable::Put(Plan* plan, Arrival arrival, int64_t since_ns) {
  Epoch* epoch = EpochOf(plan, arrival.step);
  if (epoch == nullptr) {
    plan->held.push_back({std::move(arrival), since_ns});
    return;
  }
  if (plan->tuner != nullptr && epoch->start > 0) plan->tuner->TensorCame(arrival.step - epoch->start, since_ns);
  bool completes = false;
  PlannedBucket& bucket = epoch->layout.Put(std::move(arrival), &completes);
  if (completes) trace_.Record("bucket_complete", plan->spec.key, bucket.index);
  TryStart(plan, epoch, &bucket);
}

// --- Buckets ---

void PlanTable::TryStart(Plan* plan, Epoch* epoch, PlannedBucket* bucket) {
  if (!plan->decided || !plan->verdict.ok() || !bucket->complete() || !KnowsWay(plan, *bucket)) return;
  if (!plan->busy.insert(bucket->operation).second) return;

  auto arrivals = std::make_shared<std::vector<Arrival>>(std::move(bucket->generations.front().arrivals));
  const int64_t submitted_ns = bucket->generations.front().since_ns;
  bucket->generations.pop_front();
  ++bucket->next_step;
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
  Answer(plan, arrivals, status);
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

// What belongs to one step.
void PlanTable::Answer(Plan* plan, const std::vector<Arrival>& arrivals, const Status& status) {
  const Status given_up = plan->steps.VoidStatus(arrivals.empty() ? 0 : arrivals.front().step + 1);
  plan->open -= static_cast<int64_t>(arrivals.size());
  for (const Arrival& arrival : arrivals) {
    if (!arrival.zeros) plan->steps.Finish(arrival.index);
    arrival.done(status.ok() ? given_up : status);
  }
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
  Answer(plan, waiting, why);
  for (const Kept& kept : TakeKept(plan)) kept.done(why);
}

void PlanTable::FailAll(const Status& why) {
  for (auto& [id, plan] : plans_) FailWaiting(&plan, why);
}

}  // namespace smddp
