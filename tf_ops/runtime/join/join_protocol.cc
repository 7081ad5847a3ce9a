#include "runtime/join/join_protocol.h"

#include <algorithm>
#include <utility>

#include "core/clock.h"
#include "core/process/log.h"

namespace smddp {

// --- This rank's call ---

void JoinProtocol::Join(int* last, DoneCallback done) {
  if (!bus_.failure().ok()) return done(bus_.failure());
  Log(LogLevel::kDebug, "hvd.join: this rank has no more data");
  // Steps that failed here are given up: completed with zeros, they would look successful on the other ranks.
  given_up_steps_.GiveUpBroken();
  given_up_requests_.GiveUpExpected();
  if (!bus_.failure().ok()) return done(bus_.failure());
  call_ = {std::move(done), last, NowNs(), /*ending=*/false, Drained()};
  const JoinNotice notice = {rounds_.round(), /*joins=*/true, call_.drained, planned_.Steps()};
  bus_.PostToOthers(Encode(notice));
  OnNotice(bus_.topology().rank(), notice);
}

void JoinProtocol::End(const Status& status) {
  call_.ending = false;
  const DoneCallback done = std::exchange(call_.done, nullptr);
  if (done) done(status);
  for (std::function<void()>& request : std::exchange(held_, {})) RunOrHold(std::move(request));
}

// --- Messages ---

Status JoinProtocol::OnMessage(int from, std::string_view message) {
  JoinNotice notice;
  JoinOver over;
  if (Decode(message, &notice)) {
    OnNotice(from, notice);
    return Status::Ok();
  }
  if (!Decode(message, &over)) return Refused(bus_.topology(), from);
  if (from == 0 && over.last < bus_.topology().size()) return OnOver(over);
  return Refused(bus_.topology(), from, "sent an invalid end of hvd.join");
}

void JoinProtocol::OnNotice(int from, const JoinNotice& notice) {
  const int rank = bus_.topology().rank();
  if (notice.joins) {
    rounds_.Add(from);
    coordination_.OnJoin();
    if (from != rank) TellStepsBeyond(notice.steps, from);
  }
  // Also on this rank: a step that was begun in part is completed with zeros. Not in the next round, in which this
  // rank is active again.
  if (call_.done && notice.round == rounds_.round() && !call_.ending) ContributeZeros(notice.steps);
  if (rank != 0 || !bus_.failure().ok()) return;
  const std::optional<JoinOver> over = Decide(from, notice);
  if (!over) return;
  bus_.PostToOthers(Encode(*over));
  const Status status = OnOver(*over);
  if (!status.ok()) bus_.Fail(status);
}

std::optional<JoinOver> JoinProtocol::Decide(int from, const JoinNotice& notice) {
  if (notice.joins) {
    ++joined_ranks_;
    next_.last = from;
    for (const auto& [plan, steps] : notice.steps) next_.steps[plan] = std::max(next_.steps[plan], steps);
  }
  if (notice.drained) ++drained_ranks_;
  const int size = bus_.topology().size();
  if (joined_ranks_ < size || drained_ranks_ < size) return std::nullopt;
  joined_ranks_ = drained_ranks_ = 0;
  return std::exchange(next_, JoinOver());
}

Status JoinProtocol::OnOver(const JoinOver& over) {
  if (!call_.done || call_.ending) {
    return Refused(bus_.topology(), 0, "ended a round of hvd.join in which this rank has not joined");
  }
  ContributeZeros(over.steps);  // from here on all ranks have the same step counts
  wanted_.clear();
  *call_.last = bus_.topology().global_rank(over.last);
  rounds_.EndRound();
  call_.ending = true;
  Log(LogLevel::kDebug, "hvd.join is over: rank ", *call_.last, " joined last");
  Step();
  return Status::Ok();
}

// Costs a few comparisons when no rank joins.
void JoinProtocol::Step() {
  if (!call_.done || !bus_.failure().ok()) return;
  if (!call_.drained && Drained()) {
    call_.drained = true;
    const JoinNotice notice = {rounds_.round(), /*joins=*/false, /*drained=*/true, {}};
    if (bus_.topology().rank() != 0) return bus_.Post(0, Encode(notice));
    return OnNotice(0, notice);
  }
  if (call_.ending && planned_.matcher().zeros_in_flight() == 0 && zero_tasks_ == 0) End(Status::Ok());
}

// --- Steps of plans ---

// A rank that has just joined lacks the steps that are under way here.
void JoinProtocol::TellStepsBeyond(const StepCounts& known, int to) {
  JoinNotice notice;
  notice.round = rounds_.round();
  for (const auto& [plan, steps] : planned_.Steps()) {
    if (StepsOf(known, plan) < steps) notice.steps[plan] = steps;
  }
  if (!notice.steps.empty()) Tell(notice, to);
}

void JoinProtocol::Tell(const JoinNotice& notice, int joined) {
  for (const auto& [name, steps] : notice.steps) {
    if (planned_.plans().Named(name)->spec().parting.whole()) continue;
    return bus_.Fail(
        Status(Reason::kBadState, NamedWithHost(bus_.topology(), joined), " has called hvd.join, but ", name,
               " needs it: every rank owns a part of the results. Give all ranks the same number of steps."));
  }
  bus_.Post(joined, Encode(notice));
}

void JoinProtocol::OnStepBegun(const PlannedTensor& where) {
  if (!rounds_.anyone()) return;
  const Plan* const plan = planned_.plans().At(where);
  const JoinNotice notice = {rounds_.round(), false, false, {{plan->name(), plan->steps().begun()}}};
  for (int rank = 0; rank < bus_.topology().size(); ++rank) {
    if (rank != bus_.topology().rank() && rounds_.has_joined(rank)) Tell(notice, rank);
  }
}

void JoinProtocol::ContributeZeros(const StepCounts& counts) {
  for (const auto& [plan, steps] : counts) {
    const Result<bool> known = planned_.ContributeZeros(plan, steps);
    if (!known.ok()) return bus_.Fail(known.status());
    // Not known here: rank 0's verdict on it will arrive later.
    if (!*known) wanted_[plan] = std::max(wanted_[plan], steps);
  }
}

// --- Requests of the others that this rank has not made ---

void JoinProtocol::OnVerdict(const Verdict& verdict) {
  if (verdict.kind == RequestKind::kPlan) {
    const Status added = planned_.AddForeign(verdict);
    if (!added.ok()) return bus_.Fail(added);
    const auto wanted = wanted_.extract(verdict.name);
    if (!wanted.empty()) ContributeZeros({{verdict.name, wanted.mapped()}});
    return;
  }
  RunningTask running;
  Result<TaskPtr> task = requests_.BeginZeros(verdict, planned_.zeros(), &running.keep);
  if (!task.ok()) return bus_.Fail(task.status());
  if (*task == nullptr) return;
  running.task = std::move(*task);
  running.submitted_ns = NowNs();
  running.name = "allreduce '" + verdict.name + "' of the other ranks";
  ++zero_tasks_;
  running.done = [this](const Status&) { --zero_tasks_; };
  bus_.Run(std::move(running));
}

// --- The session ---

Status JoinProtocol::AfterDeparture(int rank, const std::string& who) {
  if (!call_.done || call_.ending || rounds_.has_joined(rank)) return Status::Ok();
  return Status(Reason::kPeerLeft, who, " while hvd.join waited for it. Every rank must call hvd.join.");
}

}  // namespace smddp
