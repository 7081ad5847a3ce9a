#include "runtime/plans/planned_reductions.h"

#include <algorithm>
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
  announcement.tensors = spec.tensors;
  announcement.SetArithmetic(spec);
  announcement.facts = DescribePlan(spec);
  return announcement;
}

PlanSpec SpecOf(const Announcement& announcement) {
  PlanSpec spec;
  spec.SetArithmetic(announcement);
  spec.key = announcement.plan_key;
  spec.tensors = announcement.tensors;
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
      matcher_(bus, launcher_, zeros_) {
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
  Plan* const plan = Announce(where);
  const int64_t steps = plan != nullptr ? plan->steps().begun() : 0;
  const Status status = matcher_.Arrive(plan, where, tensor, std::move(done));
  if (!status.ok()) bus_.Fail(status);  // otherwise its bucket would wait for ever on every rank
  if (plan == nullptr) return false;
  TrySendOrder(plan);
  return plan->steps().begun() > steps;
}

// --- The ranks agree on a plan ---

// Unless it is known already and was not refused in an earlier run.
Plan* PlannedReductions::Announce(const PlannedTensor& where) {
  Plan* const known = plans_.At(where);
  if (known != nullptr && !known->agreed().MayAskIn(where.run)) return known;
  const std::shared_ptr<const PlanSpec> registered = registry_.Find(where.plan);
  if (registered == nullptr) return known;
  PlanSpec spec = *registered;
  spec.wire_dtype = WireFor(spec.wire_dtype, NodeRate(fabric_));
  // Matched by content: other plans that a rank traces, and when, do not matter.
  const std::string name = PlanName(spec, where.site);
  bool made = false;
  Plan* const plan = plans_.Add(where, name, spec, &made);
  if (!made) device_paths_.AskAlso(name);  // used so far by other ranks only, now also by this one
  if (!made || plan->agreed().refused()) return plan;
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
  return plan;
}

void PlannedReductions::Adopt(Plan* plan, const Verdict& verdict, bool devices_asked) {
  const bool devices_possible = !verdict.data.empty();
  plan->agreed().Adopt(static_cast<int>(verdict.operation), devices_possible);
  if (devices_possible) device_paths_.Expect(plan->name(), devices_asked);
}

void PlannedReductions::Decide(const std::string& name, const Status& verdict) {
  Plan* const plan = plans_.Named(name);
  plan->agreed().Decide(verdict);
  if (!verdict.ok()) return matcher_.FailWaiting(plan, verdict);
  LogLayout(*plan);
  matcher_.LaunchComplete(plan);
  TrySendOrder(plan);
}

Status PlannedReductions::AddForeign(const Verdict& verdict) {
  if (verdict.operation >= kMaxPlans) return Status::Ok();  // it cannot be used
  Plan* const plan = plans_.AddForeign(verdict.name, SpecOf(verdict.request));
  if (plan == nullptr) {
    return OtherVersion("Rank 0 sent a verdict on ", verdict.name,
                        ", which this rank has requested itself, as if it had called hvd.join");
  }
  if (plan->agreed().refused()) return Status::Ok();
  // The other ranks' agreement reaches this rank, which contributes nothing to it.
  Adopt(plan, verdict, /*devices_asked=*/true);
  Decide(verdict.name, Status::Ok());
  return Status::Ok();
}

// --- The order of the gradients ---

std::optional<PlanOrder> PlannedReductions::OrderToSend(const Plan& plan) const {
  if (!plan.agreed().reached() || plan.ordered() || fabric_.topology.rank() != 0) return std::nullopt;
  // Where the sum of an element depends on its position in the bucket, positions must not change.
  const bool may_change = observe_ && plan.places_vary() && !SumsDependOnPlace(fabric_);
  std::optional<std::vector<int>> order = may_change ? plan.ObservedOrder() : std::vector<int>();
  if (!order) return std::nullopt;
  return PlanOrder{plan.agreed().number(), std::move(*order)};
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
  if (!plan->SetOrder(order.order)) return false;
  if (plan->reordered()) LogLayout(*plan);
  for (const int index : order.order) bus_.trace().Record(TraceWhat::kPlanOrder, plan->spec().key, index);
  matcher_.PlaceEarly(plan);
  return true;
}

void PlannedReductions::LogLayout(const Plan& plan) const {
  if (!Logs(LogLevel::kDebug)) return;
  int64_t bytes = 0;
  std::set<std::string> algorithms;
  for (const PlannedBucket& bucket : plan.buckets()) {
    bytes += bucket.bucket().wire_bytes();
    if (fabric_.topology.node_count() == 1) continue;
    algorithms.insert(launcher_.RailFor(plan, bucket.bucket(), bucket.bucket().elements).name);
  }
  std::string between;
  for (const std::string& name : algorithms) between += (between.empty() ? "; between nodes " : ", ") + name;
  Log(LogLevel::kDebug, plan.name(), plan.reordered() ? " continues in rank 0's order" : " is agreed on", ": ",
      plan.spec().tensors.size(), " gradients of ", bytes, " bytes, fusion buckets: ", plan.buckets().size(), between);
}

int64_t PlannedReductions::OldestNs() const {
  int64_t oldest = kNever;
  for (const PlanWait& wait : plans_.Waits()) oldest = std::min(oldest, wait.since_ns);
  return oldest;
}

// --- Steps ---

StepCounts PlannedReductions::Steps() const {
  StepCounts steps;
  for (const auto& [name, plan] : plans_.all()) {
    if (plan.steps().begun() > 0) steps[name] = plan.steps().begun();
  }
  return steps;
}

Result<bool> PlannedReductions::ContributeZeros(const std::string& name, int64_t steps) {
  Plan* const plan = plans_.Named(name);
  if (plan == nullptr) return false;
  PlanSteps& mine = plan->steps();
  if (plan->spec().tensors.empty() || plan->agreed().refused()) return true;
  if (steps > mine.begun() + kMaxStepsAhead) {
    return OtherVersion("Another rank reports that it has begun step ", steps, " of ", name, ", which is step ",
                        mine.begun(), " here");
  }
  for (int64_t step = mine.fewest(); step < steps; ++step) PlaceZeros(plan, mine.Fill(step + 1), step);
  return true;
}

void PlannedReductions::PlaceZeros(Plan* plan, const std::vector<int>& tensors, int64_t step) {
  for (const int index : tensors) matcher_.PlaceZeros(plan, index, step);
  TrySendOrder(plan);
}

std::vector<KeptArrival> PlannedReductions::EndKeeping(Plan* plan, bool forget) {
  std::vector<KeptArrival> kept = matcher_.TakeKept();
  if (forget) {
    device_paths_.Forget(plan->name());
    plans_.Forget(plan);
  }
  return kept;
}

}  // namespace smddp
