#include "runtime/plans/given_up_steps.h"

#include "core/clock.h"
#include "core/process/log.h"

namespace smddp {
namespace {

// Is `step`, counted from 1, the last step of the plan that has begun, does it have a run number, and does it lack
// tensors?
bool IsBroken(const Plan& plan, int64_t step) {
  const PlanSteps& steps = plan.steps();
  return !plan.agreed().refused() && steps.run() != 0 && steps.begun() == step && !steps.complete();
}

}  // namespace

void GivenUpSteps::Cancel(const PlannedTensor& where) {
  const auto same = [&](const PlannedTensor& other) {
    return other.plan == where.plan && other.site == where.site && other.run == where.run;
  };
  if (cancelled_.empty() || !same(cancelled_.back().first)) cancelled_.emplace_back(where, NowNs());
}

void GivenUpSteps::Tick(int64_t now_ns) {
  while (!cancelled_.empty() && now_ns - cancelled_.front().second >= kSettleNs) {
    const PlannedTensor where = cancelled_.front().first;
    cancelled_.erase(cancelled_.begin());
    Plan* const plan = planned_.plans().At(where);
    if (plan == nullptr || where.run == 0 || plan->steps().run() != where.run) continue;
    if (IsBroken(*plan, plan->steps().begun())) GiveUp(plan, plan->steps().begun());
  }
}

void GivenUpSteps::BeforeArrival(const PlannedTensor& where) {
  Plan* const plan = planned_.plans().At(where);
  if (plan == nullptr) return;
  plan->steps().Expect(false);
  if (!plan->agreed().refused() && plan->steps().BreaksOff(where.run)) GiveUp(plan, plan->steps().begun());
}

void GivenUpSteps::Begin(const PlannedTensor& where) {
  if (!bus_.failure().ok()) return;
  Plan* const plan = planned_.Announce(where);
  if (plan == nullptr) return;
  const bool expected = plan->steps().Expect(false);
  BeforeArrival(where);
  const bool possible = !plan->agreed().refused() && !planned_.matcher().keeps(plan);
  if (expected && possible) GiveUp(plan, plan->steps().begun() + 1);
  plan->steps().Expect(true);
}

void GivenUpSteps::GiveUpBroken() {
  for (auto& [name, plan] : planned_.plans().all()) {
    PlanSteps& steps = plan.steps();
    if (steps.finished() && IsBroken(plan, steps.begun())) GiveUp(&plan, steps.begun());
    if (steps.Expect(false) && !plan.agreed().refused()) GiveUp(&plan, steps.begun() + 1);
  }
}

// Gives up the last step of the plan that has begun here, or the next one. The missing tensors are remembered until all
// ranks know of it: a rank that did not would take the sum with zeros for a valid result.
void GivenUpSteps::GiveUp(Plan* plan, int64_t step) {
  Log(LogLevel::kDebug, "step ", step, " of ", plan->name(), " is given up here");
  plan->steps().GiveUp(step, GivenUpBy(bus_.topology().global_rank(bus_.topology().rank())));
  unacknowledged_[{plan->name(), step}] = OtherRanks(bus_.topology());
  bus_.PostToOthers(Encode(StepGivenUp{plan->name(), step}));
  FillAgreed();
}

Status GivenUpSteps::OnMessage(int from, std::string_view message) {
  StepGivenUp given_up;
  if (!Decode(message, &given_up)) return Refused(bus_.topology(), from);
  if (given_up.known) {
    const auto at = unacknowledged_.find({given_up.plan, given_up.step});
    if (at != unacknowledged_.end()) at->second.erase(from);
    FillAgreed();
    return Status::Ok();
  }
  planned_.plans().Void(given_up.plan, given_up.step, GivenUpBy(bus_.topology().global_rank(from)));
  bus_.Post(from, Encode(StepGivenUp{given_up.plan, given_up.step, /*known=*/true}));
  // The tensors that this rank lacks may never arrive: the step may have failed here too, without a running operation
  // that would report it.
  Plan* const plan = planned_.plans().Named(given_up.plan);
  if (plan != nullptr && bus_.failure().ok() && IsBroken(*plan, given_up.step)) GiveUp(plan, given_up.step);
  return Status::Ok();
}

void GivenUpSteps::FillAgreed() {
  for (auto at = unacknowledged_.begin(); at != unacknowledged_.end();) {
    if (!at->second.empty()) {
      ++at;
      continue;
    }
    const auto agreed = unacknowledged_.extract(at++);
    const auto& [name, step] = agreed.key();
    Plan* const plan = planned_.plans().Named(name);
    if (plan == nullptr || plan->agreed().refused()) continue;
    planned_.PlaceZeros(plan, plan->steps().TakeMissing(step), step - 1);
  }
}

}  // namespace smddp
