#include "runtime/health/stall_report.h"

#include <algorithm>

#include "core/process/log.h"

namespace smddp {
namespace {

// An engine answers in milliseconds; after this time a rank without an answer counts as silent.
constexpr int64_t kPatienceNs = 1000 * 1000000LL;
// How long an answer is used before the rank is asked again.
constexpr int64_t kFreshNs = 1500 * 1000000LL;
constexpr int kMaxRanks = 8;

}  // namespace

bool StallReport::AskAll(int64_t now_ns) {
  bool known = true;
  for (const int rank : topology_.all().world_ranks()) {
    Asked& asked = asked_[rank];
    const bool silent = asked.silent();
    const bool known_silent = silent && now_ns - asked.silent_since_ns >= kPatienceNs;
    if (asked.asked_ns != 0 && now_ns - asked.asked_ns < kFreshNs) {
      known &= !silent || known_silent;
      continue;
    }
    if (!silent) asked.silent_since_ns = now_ns;
    asked.asked_ns = now_ns;
    if (rank == topology_.rank()) {
      asked.answer = local_status_();
      asked.answered_ns = now_ns;
    } else {
      Log(LogLevel::kDebug, "an operation has waited for too long: asking rank ", topology_.global_rank(rank),
          " for its status");
      RankStatus question;
      question.asks = true;
      bus_.Post(rank, Encode(question));
      known &= known_silent;
    }
  }
  return known;
}

bool StallReport::OnMessage(int from, std::string_view message, int64_t now_ns) {
  RankStatus answer;
  if (!Decode(message, &answer)) return false;
  if (answer.asks) {
    bus_.Post(from, Encode(local_status_()));
    return true;
  }
  asked_[from].answer = std::move(answer);
  asked_[from].answered_ns = now_ns;
  return true;
}

std::string StallReport::Line(int rank, const Asked& asked, const StepCounts& mine) const {
  if (asked.silent()) {
    return NamedWithHost(topology_, rank) +
           " does not answer: its process or host is frozen, or the link to it is cut.";
  }
  std::string line = asked.answer.sentence;
  for (const auto& [plan, steps] : mine) {
    const int64_t begun = StepsOf(asked.answer.steps, plan);
    if (begun >= steps) continue;
    line += " It has begun " + std::to_string(begun) + " of the " + std::to_string(steps) + " reductions of " + plan +
            " that rank " + std::to_string(topology_.global_rank(topology_.rank())) + " has.";
  }
  return line;
}

std::vector<std::string> StallReport::Lines(const std::set<int>& ranks, const StepCounts& mine) const {
  std::vector<std::string> lines;
  for (const int rank : ranks) {
    if (lines.size() == kMaxRanks) {
      lines.push_back("And " + std::to_string(ranks.size() - kMaxRanks) + " more ranks.");
      break;
    }
    if (asked_[rank].known()) lines.push_back(Line(rank, asked_[rank], mine));
  }
  return lines;
}

std::set<int> StallReport::Suspects(const std::set<int>& ranks) const {
  std::set<int> suspects;
  for (const int rank : ranks) {
    const Asked& asked = asked_[rank];
    if (asked.known() && (asked.silent() || !asked.answer.in_task)) suspects.insert(rank);
  }
  return suspects;
}

bool StallReport::AllWait(int64_t still_ns) const {
  return std::all_of(asked_.begin(), asked_.end(), [still_ns](const Asked& asked) {
    return asked.known() && !asked.silent() && asked.answer.waits_for != WaitsFor::kNothing &&
           asked.answer.still_ns >= still_ns;
  });
}

bool StallReport::Deadlocked(int64_t still_ns) const {
  if (!AllWait(still_ns)) return false;
  const auto is_ahead = [&](const RankStatus& status) {
    for (const auto& [plan, steps] : status.steps) {
      for (const Asked& other : asked_) {
        if (StepsOf(other.answer.steps, plan) < steps) return true;
      }
    }
    return false;
  };
  return std::all_of(asked_.begin(), asked_.end(), [&](const Asked& asked) {
    return asked.answer.waits_for == WaitsFor::kCall || is_ahead(asked.answer);
  });
}

}  // namespace smddp
