#include "runtime/health/stall_watch.h"

#include <algorithm>
#include <iterator>

#include "core/clock.h"
#include "core/process/log.h"

namespace smddp {
namespace {

constexpr double kStartWarnSeconds = 5;
constexpr int64_t kStartRequests = 16;
constexpr size_t kMaxOperations = 6;
constexpr int kMaxNames = 6;

int64_t Seconds(int64_t since_ns, int64_t now_ns) { return (now_ns - since_ns) / 1000000000; }

// Tasks use rank numbers inside their process set.
std::string CountedIn(const Topology& topology) {
  if (!topology.is_process_set()) return "";
  return " (counted inside the process set of the ranks " + NumbersOf(topology, topology.all().world_ranks()) + ")";
}

std::string DescribeWait(const PlanWait& wait, int64_t now_ns, const Topology& topology) {
  const PlannedBucket* const bucket = wait.bucket;
  const std::string since = Concat("gradients of '", wait.plan->spec().key, "' have waited for ",
                                   Seconds(wait.since_ns, now_ns), " s on this rank ");
  if (bucket == nullptr) {
    return Concat(since, "for rank ", topology.global_rank(0), " to compute all of them for the first time.");
  }
  const Generation& generation = *bucket->waiting();
  std::string missing;
  int shown = 0;
  for (size_t slot = 0; slot < generation.arrivals.size() && shown < kMaxNames; ++slot) {
    if (generation.arrivals[slot].done) continue;
    missing += (shown++ == 0 ? "" : ", ") + std::to_string(bucket->bucket().slots[slot].tensor);
  }
  std::string what = missing.empty() ? "" : "for gradient " + missing + " of the same fusion bucket";
  if (!wait.plan->agreed().reached()) {
    what += std::string(what.empty() ? "" : " and ") + "for the other ranks to trace the same step";
  }
  return since + what + ".";
}

}  // namespace

StallWatch::StallWatch(ControlBus& bus, const Env& env, RunningTasks& tasks, Coordination& coordination,
                       const NamedMatching& named, const PlannedReductions& planned, const Component& join)
    : bus_(bus),
      warn_s_(env.stall_warn_s),
      error_s_(env.stall_error_s),
      tasks_(tasks),
      coordination_(coordination),
      named_(named),
      planned_(planned),
      join_(join),
      report_(bus, [this] { return LocalStatus(); }) {}

Status StallWatch::OnMessage(int from, std::string_view message) {
  return report_.OnMessage(from, message, NowNs()) ? Status::Ok() : Refused(bus_.topology(), from);
}

void StallWatch::Tick(int64_t now_ns) {
  if (!join_.waiting()) join_reminder_ = {};
  if (warn_s_ > kStartWarnSeconds && named_.done() < kStartRequests && planned_.Steps().empty()) {
    for (const std::string& sentence : coordination_.coordinator().Stalled(now_ns, kStartWarnSeconds, true)) {
      Log(LogLevel::kWarning, sentence);
    }
  }
  if (!IsStalled(now_ns) || !report_.AskAll(now_ns)) return;
  if (warn_s_ > 0) Warn(now_ns);
  if (error_s_ > 0) EndStalled(now_ns);
}

// Is a warning or an error due?
bool StallWatch::IsStalled(int64_t now_ns) const {
  const auto too_long = [&](const Reminder& reminder, int64_t since_ns) {
    return (warn_s_ > 0 && reminder.Due(since_ns, now_ns, warn_s_)) ||
           (error_s_ > 0 && now_ns - since_ns >= error_s_ * 1e9);
  };
  bool stalled = too_long(join_reminder_, JoinStillNs());
  for (const RunningTask& running : tasks_.all()) stalled |= too_long(running.reminder, running.since_ns);
  for (const PlanWait& wait : planned_.plans().Waits()) stalled |= too_long(*wait.reminder, wait.since_ns);
  const Coordinator& coordinator = coordination_.coordinator();
  return stalled || (warn_s_ > 0 && !coordinator.Missing(now_ns, warn_s_, /*due_only=*/true).empty()) ||
         (error_s_ > 0 && !coordinator.Missing(now_ns, error_s_, /*due_only=*/false).empty());
}

int64_t StallWatch::JoinStillNs() const {
  return join_.waiting() && tasks_.empty() ? std::max(join_.OldestNs(), bus_.last_worked_ns()) : Component::kNever;
}

// --- Warnings ---

void StallWatch::Warn(int64_t now_ns) {
  Coordinator& coordinator = coordination_.coordinator();
  const std::set<int> missing = coordinator.Missing(now_ns, warn_s_, /*due_only=*/true);
  std::vector<std::string> sentences = coordinator.Stalled(now_ns, warn_s_);
  const auto add = [&sentences](std::vector<std::string> more) {
    sentences.insert(sentences.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  };
  add(report_.Lines(missing, {}));
  const std::vector<std::string> own = OwnStalls(now_ns);
  add(own);
  if (!own.empty()) add(report_.Lines(report_.Suspects(OtherRanks(bus_.topology())), planned_.Steps()));
  if (sentences.empty()) return;
  const std::string deadlock = Deadlock();
  if (!deadlock.empty()) sentences.push_back(deadlock);
  for (const std::string& sentence : sentences) Log(LogLevel::kWarning, sentence);
}

// What has been under way on this rank for too long; the first few.
std::vector<std::string> StallWatch::OwnStalls(int64_t now_ns) {
  std::vector<std::string> own;
  for (const PlanWait& wait : planned_.plans().Waits()) {
    const bool due = wait.reminder->Take(wait.since_ns, now_ns, warn_s_);
    if (due) own.push_back(DescribeWait(wait, now_ns, bus_.topology()));
  }
  for (RunningTask& running : tasks_.all()) {
    if (!running.reminder.Take(running.since_ns, now_ns, warn_s_)) continue;
    own.push_back(running.name + " has been under way for " + std::to_string(Seconds(running.since_ns, now_ns)) +
                  " s: " + running.task->Describe() + CountedIn(bus_.topology()));
  }
  if (join_reminder_.Take(JoinStillNs(), now_ns, warn_s_)) {
    own.push_back("hvd.join has waited for " + std::to_string(Seconds(join_.OldestNs(), now_ns)) +
                  " s: not every rank has called it.");
  }
  if (own.size() <= kMaxOperations) return own;
  const size_t more = own.size() - kMaxOperations;
  own.resize(kMaxOperations);
  own.push_back("And " + std::to_string(more) + " more operations.");
  return own;
}

// A sentence, or "" when there is no deadlock. A deadlock never ends a session by itself: a thread of the program may
// make the missing call in an hour, and an engine cannot exclude that.
std::string StallWatch::Deadlock() const {
  if (!report_.Deadlocked(static_cast<int64_t>(warn_s_ * 1e9) / 2)) return "";
  return "All " + std::to_string(bus_.topology().size()) + " ranks" +
         (bus_.topology().is_process_set() ? " of this process set" : "") +
         " wait in collectives, each for a call that another rank has not made: a deadlock, unless another thread "
         "makes one of these calls. Every rank must make the same calls in the same order; look for a "
         "call, or a callback that makes one, that only some ranks have.";
}

// --- Errors ---

std::string StallWatch::StuckGradients(int64_t now_ns) const {
  for (const PlanWait& wait : planned_.plans().Waits()) {
    if (now_ns - wait.since_ns >= error_s_ * 1e9) return DescribeWait(wait, now_ns, bus_.topology());
  }
  return "";
}

void StallWatch::EndStalled(int64_t now_ns) {
  const auto about = [&](const std::set<int>& ranks) {
    std::string text;
    for (const std::string& line : report_.Lines(ranks, planned_.Steps())) text += " " + line;
    return text;
  };
  coordination_.Answer(coordination_.coordinator().Expire(now_ns, error_s_, about));
  std::string stuck = StuckGradients(now_ns);
  for (const RunningTask& running : tasks_.all()) {
    if (!stuck.empty() || now_ns - running.since_ns < error_s_ * 1e9) continue;
    stuck = running.name + " did not finish within " + std::to_string(static_cast<int64_t>(error_s_)) +
            " s (SMDDP_STALL_ERROR_SECONDS): " + running.task->Describe() + CountedIn(bus_.topology()) + ".";
  }
  if (stuck.empty() && now_ns - JoinStillNs() >= error_s_ * 1e9) {
    stuck = "hvd.join did not finish within " + std::to_string(static_cast<int64_t>(error_s_)) +
            " s (SMDDP_STALL_ERROR_SECONDS): not every rank has called it, and the others have reduced nothing.";
  }
  if (stuck.empty()) return;
  bus_.Fail(Status(Reason::kTimedOut, stuck + about(report_.Suspects(OtherRanks(bus_.topology())))));
}

// --- Where this rank is ---

WaitsFor StallWatch::WaitingFor() const {
  // Or it has failed in the middle of a step, and reached another call.
  const bool may_have_failed = named_.waiting() && planned_.matcher().unfinished() == 0;
  // Some gradients of a step have arrived and others have not: the program still computes.
  const auto in_part = [](const auto& named) {
    return !named.second.agreed().refused() && !named.second.steps().complete();
  };
  const auto& plans = planned_.plans().all();
  if (!may_have_failed && std::any_of(plans.begin(), plans.end(), in_part)) return WaitsFor::kNothing;
  if (named_.waiting() || join_.waiting()) return WaitsFor::kCall;
  return tasks_.empty() && !planned_.waiting() ? WaitsFor::kNothing : WaitsFor::kData;
}

RankStatus StallWatch::LocalStatus() const {
  const int64_t now_ns = NowNs();
  return {/*asks=*/false,
          Sentence(now_ns),
          /*in_task=*/!tasks_.empty(),
          WaitingFor(),
          now_ns - bus_.last_worked_ns(),
          planned_.Steps()};
}

std::string StallWatch::Sentence(int64_t now_ns) const {
  const auto since = [now_ns](int64_t then_ns) { return std::to_string(Seconds(then_ns, now_ns)) + " s"; };
  const std::string who = NamedWithHost(bus_.topology(), bus_.topology().rank());
  if (!bus_.failure().ok()) return who + " has lost its session: " + bus_.failure().message();
  if (const NamedRequest* oldest = named_.Oldest()) {
    return who + " has waited in " + NameOf(oldest->announcement.kind) + " '" + oldest->announcement.name + "' for " +
           since(oldest->submitted_ns) + ".";
  }
  if (!tasks_.empty()) {
    const RunningTask& oldest = tasks_.all().front();
    return who + " has been in " + oldest.name + " for " + since(oldest.since_ns) + ".";
  }
  if (planned_.waiting()) {
    return who + " has computed some gradients of a fusion bucket but not the others for " +
           since(planned_.OldestNs()) + ".";
  }
  if (join_.waiting()) return who + " has called hvd.join and has waited for " + since(join_.OldestNs()) + ".";
  const std::string in_set = bus_.topology().is_process_set() ? " of this process set" : "";
  const std::string idle = who + " is in its own program and in no collective" + in_set;
  if (tasks_.last_done().empty()) return idle + ": it has called none in " + since(tasks_.last_done_ns()) + ".";
  return idle + "; the last one, " + tasks_.last_done() + ", ended there " + since(tasks_.last_done_ns()) + " ago.";
}

}  // namespace smddp
