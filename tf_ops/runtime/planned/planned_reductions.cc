#include "runtime/planned/planned_reductions.h"

#include <set>
#include <utility>

#include "collectives/rail/selector.h"
#include "core/process/log.h"
#include "core/wire.h"
#include "runtime/control/operation_id.h"

namespace smddp {
namespace {

// No rank can be further ahead, because a step needs the zeros of all ranks that have joined. The limit protects this
// rank from a damaged count.
constexpr int64_t kMaxStepsAhead = 1 << 13;

// Everything that a rank that has joined needs to take part (SpecOf).
Announcement AnnouncementOf(const PlanSpec& spec) {
  Announcement announcement;
  announcement.kind = RequestKind::kPlan;
  for (const TensorSpec& tensor : spec.tensors) {
    announcement.dtypes.push_back(tensor.dtype);
    announcement.shapes.push_back(tensor.shape);
  }
  announcement.SetArithmetic(spec);
  announcement.facts = DescribePlan(spec);
  return announcement;
}

PlanSpec SpecOf(const Announcement& announcement) {
  PlanSpec spec;
  spec.SetArithmetic(announcement);
  spec.key = announcement.plan_key;
  for (size_t i = 0; i < announcement.dtypes.size(); ++i) {
    spec.tensors.push_back({announcement.dtypes[i], announcement.shapes[i]});
  }
  return spec;
}

}  // namespace

PlannedReductions::PlannedReductions(ControlBus& bus, const Fabric& fabric, const Env& env,
                                     const PlanRegistry& registry, NamedMatching& named, DevicePaths& device_paths,
                                     const Verifier& verifier)
    : bus_(bus),
      fabric_(fabric),
      registry_(registry),
      named_(named),
      device_paths_(device_paths),
      plans_(env.bucket_bytes, fabric.topology.node_count()),
      observe_(env.gradient_order == "observed"),
      launcher_(bus, fabric, verifier, device_paths),
      zeros_(/*shared=*/!env.verify),
      matcher_(bus, launcher_, zeros_),
      stalls_(plans_, bus.topology()) {
  device_paths.SetOnAgreed([this](const std::string& name) {
    Plan* const plan = plans_.Named(name);
    if (plan != nullptr) matcher_.LaunchComplete(plan);
  });
}

bool PlannedReductions::Reduce(const PlannedTensor& where, const TensorRef& tensor, DoneCallback done) {
  if (!bus_.failure().ok()) {
    done(bus_.failure());
    return false;
  }
  Announce(where);
  Plan* const plan = plans_.At(where);
  const int64_t steps = plan != nullptr ? plan->steps.begun() : 0;
  const Status status = matcher_.Arrive(plan, where, tensor, std::move(done));
  if (!status.ok()) bus_.Fail(status);  // otherwise its bucket would wait for ever on every rank
  if (plan == nullptr) return false;
  TrySendOrder(plan);
  return plan->steps.begun() > steps;
}

// --- The ranks agree on a plan ---

// Unless it is known already and was not refused in an earlier run.
void PlannedReductions::Announce(const PlannedTensor& where) {
  const Plan* const known = plans_.At(where);
  if (known != nullptr && (!known->agreed.refused() || where.run == 0 || where.run == known->asked_by)) return;
  const std::shared_ptr<const PlanSpec> registered = registry_.Find(where.plan);
  if (registered == nullptr) return;
  PlanSpec spec = *registered;
  spec.wire_dtype = WireFor(spec.wire_dtype, NodeRate(fabric_));
  // Matched by content: other plans that a rank traces, and when, do not matter.
  const std::string name = PlanName(spec, where.site);
  bool made = false;
  const Plan* const plan = plans_.Add(where, name, spec, &made);
  if (!made) device_paths_.AskAlso(name);  // used so far by other ranks only, now also by this one
  if (!made || plan->agreed.refused()) return;
  NamedRequest request;
  request.announcement = AnnouncementOf(spec);
  request.announcement.name = name;
  request.announcement.plan_key = KeyAt(spec, where.site);
  request.announcement.alone = where.alone || registry_.IsOnly(spec.key);
  if (spec.parting.whole() && device_paths_.possible()) request.announcement.data = kHasDevices;
  request.begin = [this, name](const Verdict& verdict) -> Result<TaskPtr> {
    if (verdict.operation >= kMaxPlans) return TooManyPlans();
    Adopt(plans_.Named(name), verdict, /*devices_asked=*/false);
    return TaskPtr();
  };
  request.done = [this, name](const Status& status) { Decide(name, status); };
  named_.Submit(std::move(request));
}

void PlannedReductions::Adopt(Plan* plan, const Verdict& verdict, bool devices_asked) {
  plan->agreed.number = static_cast<int>(verdict.operation);
  plan->agreed.devices_possible = !verdict.data.empty();
  if (plan->agreed.devices_possible) device_paths_.Expect(plan->name, devices_asked);
}

void PlannedReductions::Decide(const std::string& name, const Status& verdict) {
  Plan* const plan = plans_.Named(name);
  plan->agreed.decided = true;
  plan->agreed.verdict = verdict;
  if (!verdict.ok()) return matcher_.FailWaiting(plan, verdict);
  LogLayout(*plan);
  matcher_.LaunchComplete(plan);
  TrySendOrder(plan);
}

Status PlannedReductions::AddForeign(const Verdict& verdict) {
  if (verdict.operation >= kMaxPlans) return Status::Ok();  // it cannot be used
  Plan* const plan = plans_.AddForeign(verdict.name, SpecOf(verdict.request));
  if (plan == nullptr) {
    return OtherVersion("Rank 0 sent a verdict on " + verdict.name +
                        ", which this rank has requested itself, as if it had called hvd.join");
  }
  if (plan->agreed.refused()) return Status::Ok();
  // The other ranks' agreement reaches this rank, which contributes nothing to it.
  Adopt(plan, verdict, /*devices_asked=*/true);
  Decide(verdict.name, Status::Ok());
  return Status::Ok();
}

// --- The order of the gradients ---

std::optional<PlanOrder> PlannedReductions::OrderToSend(const Plan& plan) const {
  const bool ready = plan.agreed.decided && !plan.agreed.refused() && !plan.ordered;
  if (!ready || fabric_.topology.rank() != 0) return std::nullopt;
  PlanOrder order;
  order.plan = plan.agreed.number;
  const size_t listed = plan.listed.buckets().size();
  // Where the sum of an element depends on its position in the bucket, positions must not change.
  if (!observe_ || listed <= 1 || SumsDependOnPlace(fabric_)) return order;
  if (plan.first_step.size() < plan.spec.tensors.size()) return std::nullopt;
  const FusionLimits limits = plans_.LimitsFor(plan.spec);
  const std::vector<Bucket> observed = PlanBuckets(plan.spec, limits, plan.first_step);
  const bool fits = listed + observed.size() <= static_cast<size_t>(kMaxBuckets);
  if (fits && !SameGroups(observed, PlanBuckets(plan.spec, limits))) order.order = plan.first_step;
  return order;
}

void PlannedReductions::TrySendOrder(Plan* plan) {
  const std::optional<PlanOrder> order = OrderToSend(*plan);
  if (!order) return;
  bus_.PostToOthers(Encode(*order));
  (void)Apply(plan, *order);
}

Status PlannedReductions::OnMessage(int from, std::string_view message) {
  PlanOrder order;
  if (from != 0 || !Decode(message, &order)) {
    return Refused(bus_.topology(), from, "sent an invalid order of gradients");
  }
  Plan* const plan = plans_.Numbered(order.plan);
  if (plan != nullptr && Apply(plan, order)) return Status::Ok();
  return Refused(bus_.topology(), from, "sent an order of gradients that does not match any plan");
}

bool PlannedReductions::Apply(Plan* plan, const PlanOrder& order) {
  if (plan->ordered) return false;
  if (!order.order.empty()) {
    const size_t tensors = plan->spec.tensors.size();
    if (!IsPermutation(order.order, tensors)) return false;
    std::vector<Bucket> buckets = PlanBuckets(plan->spec, plans_.LimitsFor(plan->spec), order.order);
    const int listed = static_cast<int>(plan->listed.buckets().size());
    if (listed + buckets.size() > static_cast<size_t>(kMaxBuckets)) return false;
    plan->observed.emplace(std::move(buckets), tensors, /*first_operation=*/listed, /*first_step=*/1);
  }
  plan->ordered = true;
  if (plan->observed) LogLayout(*plan);
  for (const int index : order.order) bus_.trace().Record(TraceWhat::kPlanOrder, plan->spec.key, index);
  matcher_.PlaceEarly(plan);
  return true;
}

void PlannedReductions::LogLayout(const Plan& plan) const {
  if (!Logs(LogLevel::kDebug)) return;
  int64_t bytes = 0;
  std::set<std::string> algorithms;
  const PlanLayout& layout = plan.observed ? *plan.observed : plan.listed;
  for (const PlannedBucket& bucket : layout.buckets()) {
    bytes += bucket.bucket.wire_bytes();
    if (fabric_.topology.node_count() == 1) continue;
    algorithms.insert(launcher_.RailFor(plan, bucket.bucket, bucket.bucket.elements).info().name);
  }
  std::string between;
  for (const std::string& name : algorithms) between += (between.empty() ? "; between nodes " : ", ") + name;
  Log(LogLevel::kDebug, plan.name + (plan.observed ? " continues in rank 0's order" : " is agreed on") + ": " +
                            std::to_string(plan.spec.tensors.size()) + " gradients of " + std::to_string(bytes) +
                            " bytes, fusion buckets: " + std::to_string(layout.buckets().size()) + between);
}

// --- Steps ---

StepCounts PlannedReductions::Steps() const {
  StepCounts steps;
  for (const auto& [name, plan] : plans_.all()) {
    if (plan.steps.begun() > 0) steps[name] = plan.steps.begun();
  }
  return steps;
}

Result<bool> PlannedReductions::ContributeZeros(const std::string& name, int64_t steps) {
  Plan* const plan = plans_.Named(name);
  if (plan == nullptr) return false;
  const int tensors = static_cast<int>(plan->spec.tensors.size());
  if (tensors == 0 || plan->agreed.refused()) return true;
  if (steps > plan->steps.begun() + kMaxStepsAhead) {
    return OtherVersion("Another rank reports that it has begun step " + std::to_string(steps) + " of " + name +
                        ", which is step " + std::to_string(plan->steps.begun()) + " here");
  }
  for (int64_t step = plan->steps.fewest(); step < steps; ++step) {
    std::vector<int> missing;
    for (int index = 0; index < tensors; ++index) {
      if (plan->steps.Of(index) != step) continue;
      plan->steps.Fill(index);
      missing.push_back(index);
    }
    PlaceZeros(plan, missing, step);
  }
  return true;
}

void PlannedReductions::PlaceZeros(Plan* plan, const std::vector<int>& tensors, int64_t step) {
  for (const int index : tensors) matcher_.PlaceZeros(plan, index, step);
  TrySendOrder(plan);
}

}  // namespace smddp
