// What enters the engine: requests matched by name, and tensors of plans.
#include <algorithm>

#include "core/clock.h"
#include "core/log.h"
#include "runtime/engine.h"
#include "runtime/operation_id.h"

namespace smddp {
namespace {

// All that a rank that has joined needs in order to take part.
Announcement Describe(const PlanSpec& spec) {
  Announcement announcement;
  announcement.kind = RequestKind::kPlan;
  for (const TensorSpec& tensor : spec.tensors) {
    announcement.dtypes.push_back(tensor.dtype);
    announcement.shapes.push_back(tensor.shape);
  }
  announcement.op = spec.op;
  announcement.prescale = spec.prescale;
  announcement.postscale = spec.postscale;
  announcement.wire_dtype = spec.wire_dtype;
  announcement.facts = DescribePlan(spec);
  announcement.plan_key = spec.key;
  return announcement;
}

}  // namespace

// --- Named requests ---

void Engine::SubmitNamed(NamedRequest request) {
  if (!failed_.ok()) return request.done(failed_);
  if (join_.waiting()) {
    auto shared = std::make_shared<NamedRequest>(std::move(request));
    return Hold([this, shared] { SubmitNamed(std::move(*shared)); });
  }
  if (trace_.on())
    trace_.Record("op_announced", request.announcement.name, 0, CapitalNameOf(request.announcement.kind));
  request.submitted_ns = NowNs();
  request.announcement.round = join_.round();
  if (request.announcement.kind != RequestKind::kPlan) {
    ++own_named_;
    request.done = [this, done = std::move(request.done)](const Status& status) {
      --own_named_;
      done(status);
    };
  }
  Announce(named_.Add(std::move(request)));
}

// By value: a verdict may come, and take the request away, while it is sent.
void Engine::Announce(Announcement announcement) {
  const int coordinator = CoordinatorOf(announcement, topology().size());
  if (coordinator == topology().rank()) return OnAnnouncement(coordinator, std::move(announcement));
  Post(coordinator, Encode(announcement));
}

void Engine::OnAnnouncement(int from, Announcement announcement) {
  const std::string plan_key = announcement.plan_key;
  const auto verdict = coordinator_.Add(from, std::move(announcement), NowNs());
  if (verdict) SendVerdict(*verdict, topology().world().world_ranks());
  if (plan_key.empty() || !failed_.ok()) return;
  if (verdict) return retirement_.Tick(!join_.anyone());
  for (const auto& refused : coordinator_.Disagreeing(plan_key)) SendVerdict(refused.verdict, refused.announced);
}

void Engine::SendVerdict(const Verdict& verdict, const std::vector<int>& to) {
  const std::string message = Encode(verdict);
  bool to_me = false;
  for (int rank : to) {
    if (verdict.answered.count(rank) != 0) continue;
    if (rank == topology().rank()) {
      to_me = true;
    } else {
      Post(rank, message);
    }
  }
  if (to_me) OnVerdict(verdict);
}

void Engine::OnVerdict(const Verdict& verdict) {
  const Result<bool> cards = plans_.OnCards(verdict);
  if (!cards.ok()) return Fail(cards.status(), /*tell_others=*/true);
  if (cards.value()) return;
  const auto& joined = verdict.joined;
  if (std::find(joined.begin(), joined.end(), topology().rank()) != joined.end()) return OnVerdictOfOthers(verdict);
  NamedRequest request;
  if (!named_.Take(verdict.name, &request)) return;
  if (!verdict.status.ok()) {
    trace_.Record("op_failed", verdict.name, 0);
    return request.done(verdict.status);
  }
  Result<TaskPtr> task = request.begin(verdict);
  if (!task.ok()) {
    request.done(task.status());
    return Fail(task.status(), /*tell_others=*/true);  // the other ranks have begun
  }
  if (trace_.on()) trace_.Record("op_start", verdict.name, 0, CapitalNameOf(request.announcement.kind));
  RunningTask running;
  running.task = std::move(*task);
  running.keep = std::move(request.keep);
  running.submitted_ns = request.submitted_ns;
  running.is_plan = request.announcement.kind == RequestKind::kPlan;
  running.name = std::string(NameOf(request.announcement.kind)) + " '" + verdict.name + "'";
  running.done = [this, name = verdict.name, done = std::move(request.done)](const Status& status) {
    trace_.Record("op_done", name, 0);
    if (status.ok()) named_done_.fetch_add(1, std::memory_order_relaxed);
    done(status);
  };
  Run(std::move(running));
}

// --- Planned reductions ---

void Engine::AddPlan(const PlannedTensor& where) {
  if (plans_.Knows(where)) return;
  const std::shared_ptr<const PlanSpec> found = registry_.Find(where.plan);
  if (found == nullptr) return;
  // Matched by what it is: what one rank traces besides, and when, does not matter.
  const std::string name = PlanName(*found, where.site);
  if (!plans_.Add(where, name, *found) || !plans_.VerdictOn(name).ok()) return;
  NamedRequest request;
  request.announcement = Describe(*found);
  request.announcement.name = name;
  request.announcement.plan_key = KeyAt(*found, where.site);
  request.announcement.alone = where.alone || registry_.IsOnly(found->key);
  if (devices_.Possible()) request.announcement.data = kHasDevices;
  request.begin = [this, name](const Verdict& verdict) -> Result<TaskPtr> {
    if (verdict.operation >= kMaxPlans) return TooManyPlans();
    plans_.SetNumber(name, static_cast<int>(verdict.operation));
    if (!verdict.data.empty()) plans_.SetDevicesPossible(name);
    return TaskPtr();
  };
  request.done = [this, name](const Status& status) { plans_.Decide(name, status); };
  SubmitNamed(std::move(request));
}

void Engine::ReducePlanned(const PlannedTensor& where, const TensorRef& tensor, DoneCallback done) {
  if (!failed_.ok()) return done(failed_);
  if (join_.waiting()) {
    return Hold(
        [this, where, tensor, done = std::move(done)]() mutable { ReducePlanned(where, tensor, std::move(done)); });
  }
  AddPlan(where);
  if (plans_.BreaksOff(where)) GiveUpStep(plans_.NameOfPlan(where));
  const bool tell = join_.anyone();
  const int64_t steps = tell ? plans_.StepsOf(where) : 0;
  const Status status = plans_.Arrive(where, tensor, std::move(done));
  if (tell && plans_.StepsOf(where) > steps) TellStep(where);
  if (!status.ok()) Fail(status, /*tell_others=*/true);  // its bucket would wait for ever, everywhere
}

// Not a named request: nobody but the plans waits for the answer, and a rank that has joined answers too.
void Engine::AskForCards(const std::string& name, const Result<std::string>& card) {
  if (!card.ok()) return Fail(card.status(), /*tell_others=*/true);
  Announcement announcement;
  announcement.kind = RequestKind::kDevices;
  announcement.name = name;
  announcement.data = card.value();
  Announce(std::move(announcement));
}

}  // namespace smddp
