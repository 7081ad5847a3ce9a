#include "runtime/plan_table.h"

#include "collectives/hierarchical.h"
#include "core/clock.h"
#include "runtime/operation_id.h"
#include "runtime/scalings.h"

namespace smddp {

FusionLimits PlanTable::LimitsFor(const PlanSpec& spec) const {
  if (options_.bucket_bytes != kAutoBytes) return {options_.bucket_bytes};
  return {BucketBytesFor(spec, fabric_.topology.node_count())};
}

Status PlanTable::Add(int id, const PlanSpec& spec) {
  Plan& plan = plans_[id];
  plan.spec = spec;
  plan.came.resize(spec.tensors.size());
  plan.layouts.emplace_back(PlanBuckets(spec, LimitsFor(spec)), spec.tensors.size(), /*first_operation=*/0);
  const size_t buckets = plan.layouts.front().buckets().size();
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
  for (PlanLayout& layout : plan.layouts) {
    for (PlannedBucket& bucket : layout.buckets()) TryStart(&plan, &bucket);
  }
  TryTellOrder(&plan);
}

Status PlanTable::CheckArrival(int id, int index, const TensorRef& tensor) const {
  const auto at = plans_.find(id);
  if (at == plans_.end() || index < 0 || index >= static_cast<int>(at->second.spec.tensors.size())) {
    return Status(Code::kFailedPrecondition,
                  "Gradient " + std::to_string(index) +
                      " belongs to a plan that this session does not know: its "
                      "tf.function was traced before hvd.shutdown(). Make the tf.function (or compile the model) "
                      "again after hvd.init().");
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
  trace_.Record("tensor_ready", plan.spec.key, index);
  ++waiting_tensors_;
  const bool first = !plan.came[index];
  if (!first && !plan.ordered) {
    plan.held.push_back({index, {tensor, std::move(done)}, NowNs()});
    return Status::Ok();
  }
  PlanLayout& layout = first ? plan.layouts.front() : plan.layouts.back();
  TryStart(&plan, &layout.Put(index, {tensor, std::move(done)}));
  if (first) {
    plan.came[index] = true;
    plan.first_step.push_back(index);
    TryTellOrder(&plan);
  }
  return Status::Ok();
}

// --- Order ---

void PlanTable::TryTellOrder(Plan* plan) {
  if (fabric_.topology.rank() != 0 || !plan->decided || !plan->verdict.ok() || plan->ordered) return;
  const size_t listed = plan->layouts.front().buckets().size();
  PlanOrder order;
  order.plan = plan->number;
  if (options_.observe_order && listed > 1 && !SumsDependOnPlace(fabric_)) {
    if (plan->first_step.size() < plan->spec.tensors.size()) return;
    const std::vector<Bucket> observed = PlanBuckets(plan->spec, LimitsFor(plan->spec), plan->first_step);
    const bool fits = listed + observed.size() <= static_cast<size_t>(kMaxBuckets);
    if (fits && !SameGroups(observed, PlanBuckets(plan->spec, LimitsFor(plan->spec)))) order.order = plan->first_step;
  }
  tell_others_(order);
  Apply(plan, order.order);
}

Status PlanTable::Adopt(const PlanOrder& order) {
  for (auto& [id, plan] : plans_) {
    if (plan.number != order.plan || plan.ordered) continue;
    if (!order.order.empty() && !IsPermutation(order.order, plan.spec.tensors.size())) break;
    Apply(&plan, order.order);
    return Status::Ok();
  }
  return Status(Code::kInternal,
                "Rank 0 sent an order of gradients that fits no plan. Do all ranks run the same version of smddp_tf?");
}

void PlanTable::Apply(Plan* plan, const std::vector<int>& order) {
  plan->ordered = true;
  if (!order.empty()) {
    const int first_operation = static_cast<int>(plan->layouts.front().buckets().size());
    plan->layouts.emplace_back(PlanBuckets(plan->spec, LimitsFor(plan->spec), order), order.size(), first_operation);
    for (const int index : order) trace_.Record("plan_order", plan->spec.key, index);
  }
  std::vector<Held> held = std::move(plan->held);
  plan->held.clear();
  for (Held& second : held) TryStart(plan, &plan->layouts.back().Put(second.index, std::move(second.arrival)));
}

// --- Buckets ---

void PlanTable::TryStart(Plan* plan, PlannedBucket* bucket) {
  if (!plan->decided || !plan->verdict.ok() || bucket->running || !bucket->complete()) return;

  auto arrivals = std::make_shared<std::vector<Arrival>>(std::move(bucket->generations.front().arrivals));
  const int64_t submitted_ns = bucket->generations.front().since_ns;
  bucket->generations.pop_front();
  bucket->running = true;
  waiting_tensors_ -= static_cast<int64_t>(arrivals->size());

  std::vector<Piece> pieces;
  for (const Arrival& arrival : *arrivals) {
    pieces.push_back({arrival.tensor.input, arrival.tensor.output, arrival.tensor.elements()});
  }
  const Scalings scalings =
      ScalingsFor(plan->spec.op, plan->spec.prescale, plan->spec.postscale, fabric_.topology.size());
  auto view = std::make_shared<FusedView>(bucket->bucket.dtype, bucket->bucket.wire_dtype, pieces, scalings.before,
                                          scalings.after, fabric_.compute);
  const FusedCall call = {PlannedOperation(plan->number, bucket->operation), view.get(), scalings.op};

  trace_.Record("bucket_start", plan->spec.key, bucket->index);
  RunningTask running;
  const bool places_vary = plan->layouts.front().buckets().size() > 1;  // on every rank alike, told or not
  const AllreduceAlgorithm& rail = RailAlgorithmFor(fabric_, view->elements(), view->wire(), places_vary);
  running.task = HierarchicalAllreduce(fabric_, rail, call);
  running.keep = view;
  running.submitted_ns = submitted_ns;
  running.name = "gradient bucket " + std::to_string(bucket->index) + " of '" + plan->spec.key + "'";
  running.done = [this, plan, bucket, arrivals](const Status& status) {
    Finish(plan, bucket, std::move(*arrivals), status);
  };
  run_(std::move(running));
}

void PlanTable::Finish(Plan* plan, PlannedBucket* bucket, std::vector<Arrival> arrivals, const Status& status) {
  trace_.Record("bucket_done", plan->spec.key, bucket->index);
  bucket->running = false;
  if (status.ok()) ++buckets_done_;
  for (Arrival& arrival : arrivals) arrival.done(status);
  if (status.ok()) TryStart(plan, bucket);
}

void PlanTable::FailWaiting(Plan* plan, const Status& why) {
  std::vector<Arrival> waiting;
  for (PlanLayout& layout : plan->layouts) {
    for (PlannedBucket& bucket : layout.buckets()) {
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
  for (const Arrival& arrival : waiting) arrival.done(why);
}

void PlanTable::FailAll(const Status& why) {
  for (auto& [id, plan] : plans_) FailWaiting(&plan, why);
}

}  // namespace smddp
