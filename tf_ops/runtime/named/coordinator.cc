#include "runtime/named/coordinator.h"

#include <algorithm>

#include "core/hash.h"
#include "runtime/control/component.h"
#include "runtime/control/operation_id.h"
#include "runtime/requests/inline_data.h"

namespace smddp {

int CoordinatorOf(const Announcement& announcement, const Topology& topology) {
  constexpr int kMaxNodes = 16;
  if (OutlivesRounds(announcement.kind)) return 0;
  const int nodes = topology.node_count();
  const int chosen = std::min(nodes, kMaxNodes);
  const auto index = static_cast<int64_t>(Fnv1a(announcement.name) % static_cast<uint64_t>(chosen));
  return topology.nodes()[index * nodes / chosen].world_rank(0);
}

Coordinator::Entry& Coordinator::EntryFor(const std::string& name, int rank, uint32_t round, int64_t now_ns) {
  std::deque<Entry>& entries = waiting_[name];
  auto at = entries.begin();
  for (; at != entries.end() && at->round <= round; ++at) {
    if (at->round == round && at->by_rank.count(rank) == 0) return *at;
  }
  Entry& added = *entries.emplace(at);
  added.round = round;
  added.since_ns = now_ns;
  return added;
}

bool Coordinator::complete(const Entry& entry) const {
  const uint32_t round = OutlivesRounds(entry.first().kind) ? join_.round() : entry.round;
  // Most calls end here: counting costs less than looking every rank up.
  return entry.by_rank.size() + join_.count(round) >= static_cast<size_t>(topology_.size()) && MissingIn(entry).empty();
}

std::set<int> Coordinator::MissingIn(const Entry& entry) const {
  std::set<int> missing;
  for (int rank = 0; rank < topology_.size(); ++rank) {
    if (!Has(entry, rank)) missing.insert(rank);
  }
  return missing;
}

std::optional<Verdict> Coordinator::Add(int rank, Announcement announcement, int64_t now_ns, bool given_up) {
  const std::string name = announcement.name;
  const uint32_t round = OutlivesRounds(announcement.kind) ? 0 : announcement.round;
  Entry& entry = EntryFor(name, rank, round, now_ns);
  entry.by_rank[rank] = std::move(announcement);
  if (given_up) entry.given_up.insert(rank);
  std::deque<Entry>& entries = waiting_[name];
  if (!complete(entries.front())) return std::nullopt;  // no other entry of the name can be complete
  const Verdict verdict = VerdictOn(name, entries.front());
  entries.pop_front();
  if (entries.empty()) waiting_.erase(name);
  return verdict;
}

std::vector<Verdict> Coordinator::RankJoined() {
  std::vector<Verdict> verdicts;
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    std::deque<Entry>& entries = at->second;
    for (; !entries.empty() && complete(entries.front()); entries.pop_front()) {
      verdicts.push_back(VerdictOn(at->first, entries.front()));
    }
    at = entries.empty() ? waiting_.erase(at) : std::next(at);
  }
  return verdicts;
}

Verdict Coordinator::VerdictOn(const std::string& name, const Entry& entry) {
  const Announcement& first = entry.first();
  Verdict verdict;
  verdict.kind = first.kind;
  verdict.name = name;
  verdict.operation = NextOperation(first.kind);
  std::vector<int> known_as;
  for (int rank = 0; rank < topology_.size(); ++rank) {
    if (entry.by_rank.count(rank) != 0) continue;
    verdict.joined.push_back(rank);
    known_as.push_back(topology_.global_rank(rank));
  }
  verdict.request = first;
  verdict.request.data.clear();
  verdict.request.number = kUnnumbered;  // where it is sent, it is sent whole
  if (!verdict.joined.empty()) verdict.status = PossibleWithJoined(first, known_as);
  verdict.answered = entry.given_up;
  if (!entry.given_up.empty()) verdict.status = GivenUpBy(topology_.global_rank(*entry.given_up.begin()));
  if (verdict.status.ok() && !GivenNumbers::Agree(entry.by_rank)) verdict.status = Check(entry.by_rank);
  if (verdict.status.ok()) Complete(entry.by_rank, &verdict);
  if (verdict.status.ok() && verdict.joined.empty()) numbers_.Number(entry.by_rank, &verdict);
  return verdict;
}

// In a process set the messages use the rank numbers that users know.
Status Coordinator::Check(const std::map<int, Announcement>& by_rank) const {
  if (!topology_.is_process_set()) return Validate(by_rank);
  std::map<int, Announcement> by_global_rank;
  for (const auto& [rank, announcement] : by_rank) by_global_rank[topology_.global_rank(rank)] = announcement;
  return Validate(by_global_rank);
}

void Coordinator::Complete(const std::map<int, Announcement>& by_rank, Verdict* verdict) const {
  const Announcement& first = by_rank.begin()->second;
  if (first.kind == RequestKind::kAllgather) {
    for (size_t tensor = 0; tensor < first.tensors.size(); ++tensor) {
      for (const auto& [rank, request] : by_rank) verdict->dim0_of_rank.push_back(request.tensors[tensor].shape[0]);
    }
    verdict->data = GatherInline(by_rank);
  } else if (first.kind == RequestKind::kDevices) {
    verdict->devices.resize(topology_.size());
    for (const auto& [rank, request] : by_rank) verdict->devices[rank] = request.data;
  } else if (first.kind == RequestKind::kPlan) {
    for (const auto& [rank, request] : by_rank) verdict->data = std::max(verdict->data, request.data);
  } else if (!first.data.empty()) {
    Result<std::string> reduced = ReduceInline(by_rank, compute_);
    verdict->status = reduced.status();
    if (reduced.ok()) verdict->data = std::move(*reduced);
  }
}

std::optional<Verdict> Coordinator::GiveUp(int rank, const std::string& name) {
  const auto at = waiting_.find(name);
  if (at == waiting_.end()) return std::nullopt;
  for (Entry& entry : at->second) {
    if (entry.by_rank.count(rank) == 0 || !entry.given_up.insert(rank).second) continue;
    Verdict verdict;
    verdict.kind = entry.first().kind;
    verdict.name = name;
    verdict.status = GivenUpBy(topology_.global_rank(rank));
    return verdict;
  }
  return std::nullopt;
}

std::set<std::string> Coordinator::PlanKeys() const {
  std::set<std::string> keys;
  for (const auto& [name, entries] : waiting_) {
    if (!entries.empty() && entries.front().is_plan()) keys.insert(entries.front().first().plan_key);
  }
  return keys;
}

std::vector<Coordinator::Expired> Coordinator::Disagreeing(const std::string& plan_key) {
  const auto concerned = [&](const Entry& entry) {
    return entry.is_plan() && entry.first().plan_key == plan_key &&
           std::all_of(entry.by_rank.begin(), entry.by_rank.end(), [](const auto& each) { return each.second.alone; });
  };
  Entry all;
  for (const auto& [name, entries] : waiting_) {
    for (const Entry& entry : entries) {
      if (concerned(entry)) all.by_rank.insert(entry.by_rank.begin(), entry.by_rank.end());
    }
  }
  if (all.by_rank.empty() || !complete(all)) return {};
  const Status why = Check(all.by_rank);
  return ExpelIf(concerned, [&](const std::string&, const Entry&) { return why; });
}

// The smallest free number; numbers from kMaxPlans on mean "none".
uint32_t Coordinator::NextPlanNumber() {
  uint32_t number = 0;
  while (plan_numbers_.count(number) != 0) ++number;
  if (number < static_cast<uint32_t>(kMaxPlans)) plan_numbers_.insert(number);
  return number;
}

uint32_t Coordinator::NextOperation(RequestKind kind) {
  if (kind == RequestKind::kPlan) return NextPlanNumber();
  return NamedOperation(topology_.rank(), topology_.size(), count_++);
}

std::string Coordinator::DescribeWaiting(const std::string& name, const Entry& entry, int64_t now_ns) const {
  const int64_t seconds = (now_ns - entry.since_ns) / 1000000000;
  return Concat(NameOf(entry.first().kind), " '", name, "' has waited for ", seconds, " s: submitted by ",
                entry.by_rank.size(), " of ", topology_.size(), " ranks, missing on rank ",
                NumbersOf(topology_, MissingIn(entry)), ". Do all ranks run the same steps in the same order?");
}

std::set<int> Coordinator::Missing(int64_t now_ns, double seconds, bool due_only) const {
  std::set<int> missing;
  for (const auto& [name, entries] : waiting_) {
    for (const Entry& entry : entries) {
      if (entry.is_plan() || !entry.is_waited_for() || now_ns - entry.since_ns < seconds * 1e9) continue;
      if (due_only && !entry.reminder.Due(entry.since_ns, now_ns, seconds)) continue;
      missing.merge(MissingIn(entry));
    }
  }
  return missing;
}

std::vector<std::string> Coordinator::Stalled(int64_t now_ns, double seconds, bool at_start) {
  std::vector<std::string> sentences;
  for (auto& [name, entries] : waiting_) {
    for (Entry& entry : entries) {
      const RequestKind kind = entry.first().kind;
      const bool sends_state = kind == RequestKind::kBroadcast || kind == RequestKind::kAllgather;
      if (at_start && (!sends_state || entry.reminder.taken())) continue;
      if (entry.is_plan() || !entry.is_waited_for() || !entry.reminder.Take(entry.since_ns, now_ns, seconds)) continue;
      sentences.push_back(DescribeWaiting(name, entry, now_ns));
    }
  }
  return sentences;
}

template <class Doomed, class Why>
std::vector<Coordinator::Expired> Coordinator::ExpelIf(Doomed doomed, Why why) {
  std::vector<Expired> expired;
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    std::deque<Entry>& entries = at->second;
    for (auto entry = entries.begin(); entry != entries.end();) {
      if (!doomed(*entry)) {
        ++entry;
        continue;
      }
      Expired& last = expired.emplace_back();
      last.verdict.kind = entry->first().kind;
      last.verdict.name = at->first;
      last.verdict.status = why(at->first, *entry);
      for (const auto& [rank, request] : entry->by_rank) {
        if (entry->given_up.count(rank) == 0) last.announced.push_back(rank);
      }
      entry = entries.erase(entry);
    }
    at = entries.empty() ? waiting_.erase(at) : std::next(at);
  }
  return expired;
}

std::vector<Coordinator::Expired> Coordinator::Expire(int64_t now_ns, double seconds, const About& about) {
  return ExpelIf(
      [&](const Entry& entry) {
        return !entry.is_plan() && entry.is_waited_for() && now_ns - entry.since_ns >= seconds * 1e9;
      },
      [&](const std::string& name, const Entry& entry) {
        return Status(Reason::kTimedOut, DescribeWaiting(name, entry, now_ns),
                      " Given up after SMDDP_STALL_ERROR_SECONDS.", about(MissingIn(entry)));
      });
}

std::vector<Coordinator::Expired> Coordinator::ExpireWaitingFor(int rank, const std::string& who) {
  return ExpelIf([&](const Entry& entry) { return !Has(entry, rank); },
                 [&](const std::string& name, const Entry& entry) {
                   const char* kind = NameOf(entry.first().kind);
                   return Status(Reason::kPeerLeft, who, " while ", kind, " '", name, "' waited for it.");
                 });
}

}  // namespace smddp
