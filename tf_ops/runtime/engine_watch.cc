// The engine's watch: who is waited for too long, and who has left.
#include <algorithm>
#include <iterator>

#include "core/clock.h"
#include "core/log.h"
#include "runtime/engine.h"
#include "runtime/stack_dump.h"

namespace smddp {
namespace {

// After a cancelled step has not moved for this long, it will not.
constexpr int64_t kCancelGraceNs = 5000 * 1000000LL;
// What a rank sent before it left may still be on its way; after this long it is not.
constexpr int64_t kDepartureGraceNs = 1000 * 1000000LL;
constexpr size_t kMostNames = 6;

// Tasks count ranks inside their process set.
std::string CountedIn(const Topology& topology) {
  if (!topology.is_process_set()) return "";
  std::string ranks;
  for (int rank = 0; rank < topology.size(); ++rank) {
    ranks += (rank == 0 ? "" : ", ") + std::to_string(topology.global_rank(rank));
  }
  return " (counted inside the process set of the ranks " + ranks + ")";
}

}  // namespace

// What this rank has under way, for the sentence about a rank that is lost.
std::string Engine::DescribeWaiting() const {
  std::vector<std::string> what = named_.Waiting();
  for (const RunningTask& running : tasks_) what.push_back(running.name);
  if (plans_.waiting()) what.emplace_back("gradients of a training step");
  if (join_.waiting()) what.emplace_back("hvd.join");
  if (what.empty()) return "";
  std::string text = " Under way on rank " + std::to_string(topology().global_rank(topology().rank())) + ": ";
  for (size_t i = 0; i < std::min(what.size(), kMostNames); ++i) text += (i == 0 ? "" : ", ") + what[i];
  if (what.size() > kMostNames) text += " and " + std::to_string(what.size() - kMostNames) + " more";
  return text + ".";
}

// The session of all ranks watches; those of process sets fail with it.
void Engine::WatchPeers() {
  if (!failed_.ok() || topology().size() == 1 || topology().is_process_set()) return;
  const int64_t now_ns = NowNs();
  last_look_ns_ = now_ns;
  heartbeat_.Tick(now_ns);
  parts_->node().Beat(now_ns);
  for (int rank : heartbeat_.Due(now_ns)) Post(rank, EncodeBeat());
  const auto lost = heartbeat_.FindLost(
      now_ns, [this](int member) { return LifeSigns{parts_->node().BeatOf(member), !parts_->Lives(member)}; });
  if (lost) Fail(Status(Code::kPeerLost, *lost + DescribeWaiting()), /*tell_others=*/true);
}

// MPI may know of a death before the watch does; it does not know who that is to the user.
Status Engine::OfTransport(const Status& error) const {
  const std::vector<int> lost = parts_->world().lost();
  if (lost.empty() || error.code() != Code::kPeerLost) return error;
  return Status(Code::kPeerLost, heartbeat_.Died(lost) + DescribeWaiting());
}

// Does anything wait for too long, so that a warning or an error is due?
bool Engine::IsStalled(int64_t now_ns) const {
  const double warn_s = env_.stall_warn_s, error_s = env_.stall_error_s;
  const auto too_long = [&](const RunningTask& running) {
    return (warn_s > 0 && running.reminder.Due(running.since_ns, now_ns, warn_s)) ||
           (error_s > 0 && now_ns - running.since_ns >= error_s * 1e9);
  };
  if (std::any_of(tasks_.begin(), tasks_.end(), too_long)) return true;
  if (warn_s > 0 && plans_.IsStalled(now_ns, warn_s)) return true;
  if (warn_s > 0 && !coordinator_.Missing(now_ns, warn_s, /*untold=*/true).empty()) return true;
  return error_s > 0 && (!coordinator_.Missing(now_ns, error_s, /*untold=*/false).empty() ||
                         !plans_.StuckFor(now_ns, error_s).empty());
}

// All ranks are asked where they are: those that are missing, and the others, because it may be a deadlock.
void Engine::WatchStalls() {
  if (!failed_.ok()) return;
  const int64_t now_ns = NowNs();
  const std::vector<int> ranks = topology().world().world_ranks();
  if (!IsStalled(now_ns) || !stalls_.Ask({ranks.begin(), ranks.end()}, now_ns)) return;
  if (env_.stall_warn_s > 0) WarnOfStalls(now_ns);
  if (env_.stall_error_s > 0) EndStalls(now_ns);
}

void Engine::WarnOfStalls(int64_t now_ns) {
  const std::set<int> missing = coordinator_.Missing(now_ns, env_.stall_warn_s, /*untold=*/true);
  std::vector<std::string> sentences = coordinator_.Stalled(now_ns, env_.stall_warn_s);
  const auto add = [&sentences](std::vector<std::string> more) {
    sentences.insert(sentences.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  };
  add(stalls_.Lines(missing, {}, /*with_stacks=*/true));
  const std::vector<std::string> own = OwnStalls(now_ns);
  add(own);
  if (!own.empty()) add(stalls_.Lines(stalls_.Suspects(OtherRanks()), plans_.Steps(), /*with_stacks=*/true));
  if (sentences.empty()) return;
  const std::string deadlock = Deadlock();
  if (!deadlock.empty()) sentences.push_back(deadlock);
  for (const std::string& sentence : sentences) Log(LogLevel::kWarning, sentence);
}

// What has been under way on this rank for too long; the first few.
std::vector<std::string> Engine::OwnStalls(int64_t now_ns) {
  std::vector<std::string> own = plans_.Stalled(now_ns, env_.stall_warn_s);
  for (RunningTask& running : tasks_) {
    if (!running.reminder.Take(running.since_ns, now_ns, env_.stall_warn_s)) continue;
    own.push_back(running.name + " has been under way for " + std::to_string((now_ns - running.since_ns) / 1000000000) +
                  " s: " + running.task->Describe() + CountedIn(topology()));
  }
  if (own.size() <= kMostNames) return own;
  const size_t more = own.size() - kMostNames;
  own.resize(kMostNames);
  own.push_back("And " + std::to_string(more) + " more operations.");
  return own;
}

// In a sentence, or "" when there is none. It is never the reason to end a session: a program may have a thread that
// comes to the missing call in an hour, and no engine can know that it will not.
std::string Engine::Deadlock() const {
  if (!stalls_.Deadlocked(static_cast<int64_t>(env_.stall_warn_s * 1e9) / 2)) return "";
  return "All " + std::to_string(topology().size()) + " ranks" +
         (topology().is_process_set() ? " of this process set" : "") +
         " wait in collectives, each for a call that another rank has not made: a deadlock, unless a thread that they "
         "do not wait in makes one of these calls. Every rank must make the same calls in the same order; look for a "
         "call, or a callback that makes one, that only some ranks have.";
}

void Engine::EndStalls(int64_t now_ns) {
  const auto about = [&](const std::set<int>& ranks) {
    std::string text;
    for (const std::string& line : stalls_.Lines(ranks, plans_.Steps(), /*with_stacks=*/false)) text += " " + line;
    return text;
  };
  for (const auto& expired : coordinator_.Expire(now_ns, env_.stall_error_s, about)) {
    SendVerdict(expired.verdict, expired.announced);
  }
  std::string stuck = plans_.StuckFor(now_ns, env_.stall_error_s);
  for (const RunningTask& running : tasks_) {
    if (!stuck.empty() || now_ns - running.since_ns < env_.stall_error_s * 1e9) continue;
    stuck = running.name + " did not finish within " + std::to_string(static_cast<int64_t>(env_.stall_error_s)) +
            " s (SMDDP_STALL_ERROR_SECONDS): " + running.task->Describe() + CountedIn(topology()) + ".";
  }
  if (stuck.empty()) return;
  Fail(Status(Code::kDeadlineExceeded, stuck + about(stalls_.Suspects(OtherRanks()))), /*tell_others=*/true);
}

std::set<int> Engine::OtherRanks() const {
  std::set<int> others(topology().world().world_ranks().begin(), topology().world().world_ranks().end());
  others.erase(topology().rank());
  return others;
}

WaitsFor Engine::WaitingFor() const {
  // Or it has failed in the middle of a step, and gone on to another call.
  const bool may_have_failed = named_.waiting() && plans_.unfinished() == 0;
  if (plans_.InPart() && !may_have_failed) return WaitsFor::kNothing;
  if (named_.waiting() || join_.waiting()) return WaitsFor::kCall;
  return tasks_.empty() && !plans_.waiting() ? WaitsFor::kNothing : WaitsFor::kData;
}

// For the other ranks, which wait.
Whereabouts Engine::Here() {
  const int64_t now_ns = NowNs();
  const auto since = [now_ns](int64_t then_ns) { return std::to_string((now_ns - then_ns) / 1000000000) + " s"; };
  Whereabouts here;
  here.in_task = !tasks_.empty();
  here.waits_for = WaitingFor();
  here.still_ns = now_ns - last_worked_ns_;
  here.steps = plans_.Steps();
  if (env_.stall_stacks) here.stacks = DumpStacks();
  std::string& text = here.sentence = NamedWithHost(topology(), topology().rank());
  if (!failed_.ok()) {
    text += " has lost its session: " + failed_.message();
  } else if (const NamedRequest* oldest = named_.Oldest()) {
    text += std::string(" has waited in ") + NameOf(oldest->announcement.kind) + " '" + oldest->announcement.name +
            "' for " + since(oldest->submitted_ns) + ".";
  } else if (!tasks_.empty()) {
    const RunningTask& oldest = tasks_.front();
    text += " has been in " + oldest.name + " for " + since(oldest.since_ns) + ".";
  } else if (plans_.waiting()) {
    text += " has brought some gradients of a fusion bucket and not the rest, for " + since(plans_.OldestNs()) + ".";
  } else if (join_.waiting()) {
    text += " has called hvd.join, and waited for " + since(join_.since_ns()) + ".";
  } else {
    const std::string in_set = topology().is_process_set() ? " of this process set" : "";
    text += " is in its own program and in no collective" + in_set;
    text += last_done_.empty() ? ": it has called none in " + since(last_done_ns_) + "."
                               : "; the last one, " + last_done_ + ", ended there " + since(last_done_ns_) + " ago.";
  }
  return here;
}

void Engine::OnGoodbye(int from, const Goodbye& goodbye) {
  departed_[from] = NowNs();
  Log(LogLevel::kDebug, NamedWithHost(topology(), from) + " has ended its session" +
                            (topology().is_process_set() ? " of a process set" : "") +
                            (goodbye.clean ? "" : " with operations under way"));
  heartbeat_.Left(from);
  if (goodbye.listens) listening_.insert(from);
  if (!goodbye.listens) parts_->world().Forget(from);
  timeline_.OnDeparture(from);
  if (failed_.ok()) retirement_.OnDeparture(from);
  if (goodbye.clean) return;
  Fail(Status(Code::kUnavailable, "Rank " + std::to_string(topology().global_rank(from)) +
                                      " ended its session (hvd.shutdown, an exception or the end of its program) "
                                      "while operations were under way. Its own output says why."),
       /*tell_others=*/false);
}

void Engine::WatchDepartures() {
  if (!failed_.ok()) return;
  const int64_t now_ns = NowNs();
  for (const auto& [rank, when_ns] : departed_) {
    if (now_ns - when_ns < kDepartureGraceNs) continue;
    const std::string who = "Rank " + std::to_string(topology().global_rank(rank)) +
                            " has ended its session (hvd.shutdown, an exception or the end of its program)";
    for (const auto& expired : coordinator_.ExpireWaitingFor(rank, who))
      SendVerdict(expired.verdict, expired.announced);
    named_.FailCoordinatedBy(rank, topology().size(), who);
    if (join_.waiting() && !join_.ending() && !join_.has_joined(rank)) {
      return Fail(Status(Code::kUnavailable, who + " while hvd.join waited for it. Every rank must call hvd.join."),
                  /*tell_others=*/true);
    }
    if (!tasks_.empty() && now_ns - last_moved_ns_ > kDepartureGraceNs) {
      return Fail(Status(Code::kUnavailable, who + " while " + tasks_.front().name +
                                                 " needed it. Do all ranks run "
                                                 "the same number of steps?"),
                  /*tell_others=*/true);
    }
  }
}

// A cancelled step often ends well: the end of the data cancels a step whose gradients are on their way everywhere. Or
// it is given up, and ends when the other ranks have come to it. Lost, on all ranks, is one that no rank can end any
// more, because each waits for another.
void Engine::WatchCancelled() {
  if (!failed_.ok() || cancelled_.empty()) return;
  int64_t oldest_ns = std::min({named_.OldestNs(), plans_.OldestNs(), staging_.OldestNs()});
  for (const RunningTask& running : tasks_) oldest_ns = std::min(oldest_ns, running.submitted_ns);
  if (join_.waiting()) oldest_ns = std::min(oldest_ns, join_.since_ns());
  // What is under way came after the cancelled step: that one has ended, well or with its own error.
  const auto over = [&](const auto& cancelled) { return oldest_ns > cancelled.when_ns; };
  cancelled_.erase(std::remove_if(cancelled_.begin(), cancelled_.end(), over), cancelled_.end());
  if (cancelled_.empty()) return;
  const int64_t now_ns = NowNs();
  const auto& [name, when_ns, told] = cancelled_.front();
  if (now_ns - when_ns < kCancelGraceNs || now_ns - last_worked_ns_ < kCancelGraceNs) return;
  const std::vector<int> ranks = topology().world().world_ranks();
  if (!stalls_.Ask({ranks.begin(), ranks.end()}, now_ns) || !stalls_.AllWait(kCancelGraceNs / 2)) return;
  Fail(Status(Code::kAborted, "Rank " + std::to_string(topology().global_rank(topology().rank())) +
                                  " gave up a step: another operation of it failed there (that rank's own error says "
                                  "which) while '" +
                                  name + "' waited for the other ranks or for other gradients."),
       /*tell_others=*/true);
}

}  // namespace smddp
