// The engine's part of hvd.join (docs/decisions/0012-join.md): a rank that has joined brings zeros to the reductions of
// the others until all have joined.
#include <algorithm>

#include "core/clock.h"
#include "core/log.h"
#include "runtime/engine.h"
#include "runtime/operation_id.h"

namespace smddp {

void Engine::Join(int* last, DoneCallback done) {
  if (!failed_.ok()) return done(failed_);
  if (join_.waiting()) return Hold([this, last, done = std::move(done)]() mutable { Join(last, std::move(done)); });
  trace_.Record("join", "", static_cast<int>(join_.round()));
  Log(LogLevel::kDebug, "hvd.join: this rank has no more data");
  // What failed here is given up: with zeros in the place of the rest it would pass for a good step on the others.
  for (const std::string& plan : plans_.BrokenOff()) GiveUpStep(plan);
  if (!failed_.ok()) return done(failed_);
  join_.Begin(last, std::move(done), NowNs());
  JoinNotice notice;
  notice.round = join_.round();
  notice.joins = true;
  notice.drained = Drained();
  notice.steps = plans_.Steps();
  if (notice.drained) join_.SetDrained();
  PostToOthers(Encode(notice));
  OnJoinNotice(topology().rank(), notice);
}

// Requests that came after hvd.join belong to the next round.
void Engine::Hold(std::function<void()> work) { held_.push_back(std::move(work)); }

// Nothing of what this rank asked for before it joined is under way.
bool Engine::Drained() const { return own_named_ == 0 && plans_.unfinished() == lent_; }

void Engine::OnJoinNotice(int from, const JoinNotice& notice) {
  if (notice.joins) {
    join_.Add(from);
    for (const Verdict& verdict : coordinator_.RankJoined()) SendVerdict(verdict, topology().world().world_ranks());
    for (const std::string& key : coordinator_.PlanKeys()) {
      for (const auto& refused : coordinator_.Disagreeing(key)) SendVerdict(refused.verdict, refused.announced);
    }
    if (from != topology().rank()) TellStepsBeyond(notice.steps, from);
  }
  // Also on my own: a step that was begun in part ends with zeros. Not on one of the next round, in which I am back.
  if (join_.waiting() && notice.round == join_.round() && !join_.ending()) BringZeros(notice.steps);
  if (topology().rank() != 0 || !failed_.ok()) return;
  const std::optional<JoinOver> over = join_.Decide(from, notice);
  if (!over) return;
  PostToOthers(Encode(*over));
  OnJoinOver(*over);
}

// A rank that has just joined lacks the steps that are under way here.
void Engine::TellStepsBeyond(const StepCounts& known, int to) {
  JoinNotice notice;
  notice.round = join_.round();
  for (const auto& [plan, steps] : plans_.Steps()) {
    const auto at = known.find(plan);
    if (at == known.end() || at->second < steps) notice.steps[plan] = steps;
  }
  if (!notice.steps.empty()) Post(to, Encode(notice));
}

// A step has begun here: those who have joined take part in it.
void Engine::TellStep(const PlannedTensor& where) {
  JoinNotice notice;
  notice.round = join_.round();
  notice.steps[plans_.NameOfPlan(where)] = plans_.StepsOf(where);
  const std::string message = Encode(notice);
  for (int rank = 0; rank < topology().size(); ++rank) {
    if (rank != topology().rank() && join_.has_joined(rank)) Post(rank, message);
  }
}

PlanTable::Lender Engine::Zeros() {
  return [this](const TensorSpec& spec) {
    Arrival arrival;
    std::shared_ptr<void> keep;
    Result<TensorRef> tensor = zeros_.Tensor(spec.dtype, spec.shape, &keep);
    if (!tensor.ok()) {
      Fail(tensor.status(), /*tell_others=*/true);
      return arrival;
    }
    ++lent_;
    arrival.tensor = std::move(*tensor);
    arrival.done = [this, keep](const Status&) { --lent_; };
    return arrival;
  };
}

void Engine::BringZeros(const StepCounts& counts) {
  for (const auto& [plan, steps] : counts) {
    const Result<bool> known = plans_.BringZeros(plan, steps, Zeros());
    if (!known.ok()) return Fail(known.status(), /*tell_others=*/true);
    // Not known here: the verdict on it is on its way from rank 0.
    if (!*known) wanted_[plan] = std::max(wanted_[plan], steps);
  }
}

// A verdict on what the others have asked for and this rank has not.
void Engine::OnVerdictOfOthers(const Verdict& verdict) {
  if (!verdict.status.ok()) return;
  if (verdict.request.kind == RequestKind::kPlan) return AddForeignPlan(verdict);
  if (verdict.request.kind == RequestKind::kDevices) return;  // of a plan that is not known here
  if (!verdict.data.empty() && !verifier_.on()) return;       // small: the coordinator has it all
  RunningTask running;
  Result<TaskPtr> task = zero_allreduce_(verdict, zeros_, &running.keep);
  if (!task.ok()) return Fail(task.status(), /*tell_others=*/true);
  running.task = std::move(*task);
  running.submitted_ns = NowNs();
  running.name = "allreduce '" + verdict.name + "' of the other ranks";
  ++zero_tasks_;
  running.done = [this](const Status&) { --zero_tasks_; };
  Run(std::move(running));
}

void Engine::AddForeignPlan(const Verdict& verdict) {
  const Announcement& asked = verdict.request;
  PlanSpec spec;
  spec.key = asked.plan_key;
  for (size_t i = 0; i < asked.dtypes.size(); ++i) spec.tensors.push_back({asked.dtypes[i], asked.shapes[i]});
  spec.op = asked.op;
  spec.prescale = asked.prescale;
  spec.postscale = asked.postscale;
  spec.wire_dtype = asked.wire_dtype;
  if (verdict.operation >= kMaxPlans) return;  // nobody will use it
  const Status added =
      plans_.AddForeign(verdict.name, spec, static_cast<int>(verdict.operation), !verdict.data.empty());
  if (!added.ok()) return Fail(added, /*tell_others=*/true);
  const auto wanted = wanted_.extract(verdict.name);
  if (!wanted.empty()) BringZeros({{verdict.name, wanted.mapped()}});
}

void Engine::OnJoinOver(const JoinOver& over) {
  if (!join_.waiting() || join_.ending()) {
    return Fail(Status(Code::kInternal,
                       "Rank 0 ended a round of hvd.join in which this rank has not joined. Do all "
                       "ranks run the same version of smddp_tf?"),
                /*tell_others=*/true);
  }
  BringZeros(over.steps);  // from here on all ranks count the same steps
  wanted_.clear();
  join_.Over(topology().global_rank(over.last));
  Log(LogLevel::kDebug, "hvd.join is over: rank " + std::to_string(topology().global_rank(over.last)) + " came last");
  StepJoin();
}

// What follows when a request is through; a few comparisons when nobody joins.
void Engine::StepJoin() {
  if (!join_.waiting() || !failed_.ok()) return;
  if (!join_.drained() && Drained()) {
    join_.SetDrained();
    JoinNotice notice;
    notice.round = join_.round();
    notice.drained = true;
    if (topology().rank() != 0) return Post(0, Encode(notice));
    return OnJoinNotice(0, notice);
  }
  if (!join_.ending() || lent_ > 0 || zero_tasks_ > 0) return;
  join_.End(Status::Ok());
  ReleaseHeld();
}

void Engine::ReleaseHeld() {
  std::vector<std::function<void()>> held = std::move(held_);
  held_.clear();
  for (auto& work : held) work();
}

}  // namespace smddp
