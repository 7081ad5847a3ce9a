#include "runtime/plan_table.h"

#include <algorithm>
#include <limits>

#include "collectives/hierarchical.h"
#include "core/check.h"
#include "core/clock.h"
#include "runtime/operation_id.h"
#include "runtime/scalings.h"

namespace smddp {

Status PlanTable::Add(int id, const PlanSpec& spec) {
  Plan plan;
  plan.spec = spec;
  plan.place_of_tensor.resize(spec.tensors.size());
  for (Bucket& bucket : PlanBuckets(spec, limits_)) {
    for (size_t slot = 0; slot < bucket.slots.size(); ++slot) {
      plan.place_of_tensor[bucket.slots[slot].tensor] = {static_cast<int>(plan.buckets.size()), static_cast<int>(slot)};
    }
    plan.buckets.push_back({std::move(bucket), {}, false});
  }
  const bool too_many = plan.buckets.size() > static_cast<size_t>(kMaxBuckets);
  if (too_many) {
    plan.decided = true;
    plan.verdict = Status(Code::kResourceExhausted,
                          "The gradients of '" + spec.key + "' make " + std::to_string(plan.buckets.size()) +
                              " fusion buckets; at most " + std::to_string(kMaxBuckets) +
                              " are possible. Set a larger SMDDP_BUCKET_BYTES (or HOROVOD_FUSION_THRESHOLD).");
  }
  const Status status = plan.verdict;
  plans_.emplace(id, std::move(plan));
  return status;
}

void PlanTable::Decide(int id, const Status& verdict) {
  Plan& plan = plans_.at(id);
  plan.decided = true;
  plan.verdict = verdict;
  if (!verdict.ok()) return FailWaiting(&plan, verdict);
  for (size_t bucket = 0; bucket < plan.buckets.size(); ++bucket) TryStart(id, static_cast<int>(bucket));
}

PlanTable::Generation& PlanTable::GenerationFor(BucketState* state, int slot) {
  for (Generation& generation : state->generations) {
    if (!generation.arrivals[slot].done) return generation;
  }
  state->generations.emplace_back();
  state->generations.back().arrivals.resize(state->bucket.slots.size());
  state->generations.back().since_ns = NowNs();
  return state->generations.back();
}

Status PlanTable::Arrive(int id, int index, const TensorRef& tensor, DoneCallback done) {
  const auto at = plans_.find(id);
  if (at == plans_.end() || index < 0 || index >= static_cast<int>(at->second.place_of_tensor.size())) {
    const Status unknown(
        Code::kFailedPrecondition,
        "Gradient " + std::to_string(index) +
            " belongs to a plan that this session does not know: its "
            "tf.function was traced before hvd.shutdown(). Make the tf.function (or compile the model) "
            "again after hvd.init().");
    done(unknown);
    return unknown;
  }
  Plan& plan = at->second;
  if (plan.decided && !plan.verdict.ok()) {
    done(plan.verdict);
    return Status::Ok();
  }
  const TensorSpec& expected = plan.spec.tensors[index];
  if (tensor.dtype != expected.dtype || tensor.elements() != expected.elements()) {
    const Status wrong(Code::kInvalidArgument, "Gradient " + std::to_string(index) + " of '" + plan.spec.key +
                                                   "' was planned as " + DescribeTensor(plan.spec, index) +
                                                   " but came with " + std::to_string(tensor.elements()) +
                                                   " elements of " + NameOf(tensor.dtype) + ".");
    done(wrong);
    return wrong;
  }
  trace_.Record("tensor_ready", plan.spec.key, index);
  const auto [bucket, slot] = plan.place_of_tensor[index];
  Generation& generation = GenerationFor(&plan.buckets[bucket], slot);
  generation.arrivals[slot] = {tensor, std::move(done)};
  ++generation.arrived;
  ++waiting_tensors_;
  TryStart(id, bucket);
  return Status::Ok();
}

void PlanTable::TryStart(int id, int bucket) {
  Plan& plan = plans_.at(id);
  BucketState& state = plan.buckets[bucket];
  if (!plan.decided || !plan.verdict.ok() || state.running || state.generations.empty()) return;
  if (state.generations.front().arrived < static_cast<int>(state.bucket.slots.size())) return;

  auto arrivals = std::make_shared<std::vector<Arrival>>(std::move(state.generations.front().arrivals));
  const int64_t submitted_ns = state.generations.front().since_ns;
  state.generations.pop_front();
  state.running = true;
  waiting_tensors_ -= static_cast<int64_t>(arrivals->size());

  std::vector<Piece> pieces;
  for (const Arrival& arrival : *arrivals) {
    pieces.push_back({arrival.tensor.input, arrival.tensor.output, arrival.tensor.elements()});
  }
  const Scalings scalings = ScalingsFor(plan.spec.op, plan.spec.prescale, plan.spec.postscale, fabric_.topology.size());
  auto view = std::make_shared<FusedView>(state.bucket.dtype, state.bucket.wire_dtype, pieces, scalings.before,
                                          scalings.after, fabric_.compute);
  const FusedCall call = {PlannedOperation(plan.number, bucket), view.get(), scalings.op};

  trace_.Record("bucket_start", plan.spec.key, bucket);
  RunningTask running;
  running.task = HierarchicalAllreduce(fabric_, RailAlgorithmFor(fabric_, view->elements(), view->wire()), call);
  running.keep = view;
  running.submitted_ns = submitted_ns;
  running.name = "gradient bucket " + std::to_string(bucket) + " of '" + plan.spec.key + "'";
  running.done = [this, id, bucket, arrivals](const Status& status) {
    Finish(id, bucket, std::move(*arrivals), status);
  };
  run_(std::move(running));
}

void PlanTable::Finish(int id, int bucket, std::vector<Arrival> arrivals, const Status& status) {
  Plan& plan = plans_.at(id);
  trace_.Record("bucket_done", plan.spec.key, bucket);
  plan.buckets[bucket].running = false;
  if (status.ok()) ++buckets_done_;
  for (Arrival& arrival : arrivals) arrival.done(status);
  if (status.ok()) TryStart(id, bucket);
}

void PlanTable::FailWaiting(Plan* plan, const Status& why) {
  for (BucketState& state : plan->buckets) {
    std::deque<Generation> generations = std::move(state.generations);
    state.generations.clear();
    for (Generation& generation : generations) {
      for (Arrival& arrival : generation.arrivals) {
        if (!arrival.done) continue;
        --waiting_tensors_;
        arrival.done(why);
      }
    }
  }
}

void PlanTable::FailAll(const Status& why) {
  for (auto& [id, plan] : plans_) FailWaiting(&plan, why);
}

int64_t PlanTable::OldestNs() const {
  int64_t oldest = std::numeric_limits<int64_t>::max();
  for (const auto& [id, plan] : plans_) {
    for (const BucketState& state : plan.buckets) {
      if (!state.generations.empty()) oldest = std::min(oldest, state.generations.front().since_ns);
    }
  }
  return oldest;
}

std::string PlanTable::DescribeMissing(const Plan& plan, const BucketState& state, const Generation& generation,
                                       int64_t now_ns) const {
  std::string missing;
  int shown = 0;
  for (size_t slot = 0; slot < generation.arrivals.size() && shown < 6; ++slot) {
    if (generation.arrivals[slot].done) continue;
    missing += (shown++ == 0 ? "" : ", ") + std::to_string(state.bucket.slots[slot].tensor);
  }
  std::string what = missing.empty() ? "" : "for gradient " + missing + " of the same fusion bucket";
  if (!plan.decided) what += std::string(what.empty() ? "" : " and ") + "for the other ranks to trace the same step";
  return "gradients of '" + plan.spec.key + "' have waited for " +
         std::to_string((now_ns - generation.since_ns) / 1000000000) + " s on this rank " + what + ".";
}

std::vector<std::string> PlanTable::Stalled(int64_t now_ns, double seconds) {
  std::vector<std::string> sentences;
  for (auto& [id, plan] : plans_) {
    for (BucketState& state : plan.buckets) {
      if (state.running || state.generations.empty()) continue;
      Generation& generation = state.generations.front();
      if (generation.reported || now_ns - generation.since_ns < seconds * 1e9) continue;
      generation.reported = true;
      sentences.push_back(DescribeMissing(plan, state, generation, now_ns));
    }
  }
  return sentences;
}

std::string PlanTable::StuckFor(int64_t now_ns, double seconds) const {
  for (const auto& [id, plan] : plans_) {
    for (const BucketState& state : plan.buckets) {
      if (state.running || state.generations.empty()) continue;
      const Generation& generation = state.generations.front();
      if (now_ns - generation.since_ns > seconds * 1e9) return DescribeMissing(plan, state, generation, now_ns);
    }
  }
  return "";
}

}  // namespace smddp
