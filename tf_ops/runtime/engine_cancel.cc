// Steps that fail on some rank before they are reduced.
//
// A step of a plan of which some tensors never come cannot be completed by any rank. The rank on which it failed tells
// the others that the step is given up, and brings zeros in the place of what is missing: so every reduction of the
// step ends on every rank, as an error, and all ranks count the same steps afterwards.
//
// A request by name for which the other ranks have not come yet is answered at once; they get an error when they come.
// Otherwise it would be reduced with what they bring in their next step.
#include <utility>

#include "core/clock.h"
#include "core/log.h"
#include "runtime/engine.h"
#include "runtime/given_up.h"

namespace smddp {
namespace {

// Ops that TensorFlow had begun to run when the step was cancelled may still hand over.
constexpr int64_t kSettleNs = 200 * 1000000LL;

}  // namespace

void Engine::Cancel(const std::string& name) {
  if (!failed_.ok()) return;
  Log(LogLevel::kDebug, "the step that holds '" + name + "' was cancelled");
  cancelled_.push_back({name, NowNs()});
}

void Engine::CancelPlanned(const PlannedTensor& where) {
  if (!failed_.ok()) return;
  Cancel("gradient " + std::to_string(where.index));
  const auto same = [&](const PlannedTensor& other) {
    return other.plan == where.plan && other.site == where.site && other.run == where.run;
  };
  if (broken_.empty() || !same(broken_.back().first)) broken_.emplace_back(where, NowNs());
}

void Engine::GiveUpBrokenSteps(int64_t now_ns) {
  if (broken_.empty() || !failed_.ok()) return;
  std::vector<PlannedTensor> due;
  while (!broken_.empty() && now_ns - broken_.front().second >= kSettleNs) {
    due.push_back(broken_.front().first);
    broken_.erase(broken_.begin());
  }
  for (const PlannedTensor& where : due) {
    if (plans_.LacksTensors(where)) GiveUpStep(plans_.NameOfPlan(where));
  }
}

// Requests that still wait for other ranks.
void Engine::GiveUpRequests(int64_t now_ns) {
  for (Cancelled& each : cancelled_) {
    if (each.told || now_ns - each.when_ns < kSettleNs) continue;
    each.told = true;
    const NamedRequest* const waiting = named_.Waiting(each.name);
    if (waiting == nullptr || waiting->submitted_ns > each.when_ns) continue;  // or of a later step
    const int coordinator = CoordinatorOf(waiting->announcement, topology().size());
    if (coordinator == topology().rank()) {
      OnRequestGivenUp(coordinator, {each.name});
    } else {
      Post(coordinator, Encode(RequestGivenUp{each.name}));
    }
  }
}

void Engine::OnRequestGivenUp(int from, const RequestGivenUp& given_up) {
  const std::optional<Verdict> answer = coordinator_.GiveUp(from, given_up.name);
  if (answer) SendVerdict(*answer, {from});
}

// The last step of the plan that has begun here.
void Engine::GiveUpStep(const std::string& plan) {
  const StepGivenUp given_up = {plan, plans_.StepsOf(plan)};
  Log(LogLevel::kDebug, "step " + std::to_string(given_up.step) + " of " + given_up.plan + " is given up here");
  plans_.Void(given_up.plan, given_up.step, GivenUpBy(topology().global_rank(topology().rank())));
  plans_.KeepPlaces(given_up.plan);
  given_up_[{given_up.plan, given_up.step}] = OtherRanks();
  PostToOthers(Encode(given_up));
  FillGivenUp();
}

void Engine::OnStepGivenUp(int from, const StepGivenUp& given_up) {
  if (!given_up.known) {
    plans_.Void(given_up.plan, given_up.step, GivenUpBy(topology().global_rank(from)));
    Post(from, Encode(StepGivenUp{given_up.plan, given_up.step, /*known=*/true}));
    // What this rank lacks of it may never come: it may have failed here too, with nothing under way that could tell.
    if (failed_.ok() && plans_.LacksTensorsOf(given_up.plan, given_up.step)) GiveUpStep(given_up.plan);
    return;
  }
  const auto at = given_up_.find({given_up.plan, given_up.step});
  if (at != given_up_.end()) at->second.erase(from);
  FillGivenUp();
}

// Not before all ranks know: one that did not would take the sum with zeros for a good one.
void Engine::FillGivenUp() {
  for (auto at = given_up_.begin(); at != given_up_.end();) {
    if (!at->second.empty()) {
      ++at;
      continue;
    }
    const auto given_up = given_up_.extract(at++);
    plans_.Fill(given_up.key().first, given_up.key().second, Zeros());
  }
}

}  // namespace smddp
