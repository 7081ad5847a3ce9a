#include "runtime/coordinator.h"

#include "runtime/operation_id.h"

namespace smddp {

int CoordinatorOf(const Announcement& announcement, int size) {
  if (announcement.kind == RequestKind::kPlan) return 0;
  uint64_t hash = 1469598103934665603ull;  // FNV-1a: the same on every rank and every machine
  for (const unsigned char byte : announcement.name) hash = (hash ^ byte) * 1099511628211ull;
  return static_cast<int>(hash % static_cast<uint64_t>(size));
}

std::optional<Verdict> Coordinator::Add(int rank, Announcement announcement, int64_t now_ns) {
  const std::string name = announcement.name;
  Entry& entry = waiting_[name];
  if (entry.by_rank.empty()) entry.since_ns = now_ns;
  entry.by_rank[rank] = std::move(announcement);
  if (static_cast<int>(entry.by_rank.size()) < topology_.size()) return std::nullopt;

  Verdict verdict;
  verdict.name = name;
  verdict.status = Validate(entry.by_rank, topology_.size());
  verdict.operation = NextOperation(entry.by_rank.begin()->second.kind);
  if (verdict.status.ok() && entry.by_rank.begin()->second.kind == RequestKind::kAllgather) {
    for (const auto& [from, request] : entry.by_rank) verdict.dim0_of_rank.push_back(request.shapes[0][0]);
  }
  waiting_.erase(name);
  return verdict;
}

uint32_t Coordinator::NextOperation(RequestKind kind) {
  if (kind == RequestKind::kPlan) return plan_count_++;
  return NamedOperation(topology_.rank(), topology_.size(), count_++);
}

std::string Coordinator::DescribeWaiting(const std::string& name, const Entry& entry, int64_t now_ns) const {
  std::string missing;
  for (int rank = 0; rank < topology_.size(); ++rank) {
    if (entry.by_rank.count(rank) != 0) continue;
    missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
  }
  const int64_t seconds = (now_ns - entry.since_ns) / 1000000000;
  return std::string(NameOf(entry.by_rank.begin()->second.kind)) + " '" + name + "' has waited for " +
         std::to_string(seconds) + " s: submitted by " + std::to_string(entry.by_rank.size()) + " of " +
         std::to_string(topology_.size()) + " ranks, missing on rank " + missing +
         ". Do all ranks run the same steps in the same order?";
}

std::vector<std::string> Coordinator::Stalled(int64_t now_ns, double seconds) {
  std::vector<std::string> sentences;
  for (auto& [name, entry] : waiting_) {
    if (entry.is_plan() || entry.reported || now_ns - entry.since_ns < seconds * 1e9) continue;
    entry.reported = true;
    sentences.push_back(DescribeWaiting(name, entry, now_ns));
  }
  return sentences;
}

Coordinator::Expired Coordinator::Expel(const std::string& name, const Entry& entry, Status status) const {
  Expired expired;
  expired.verdict.name = name;
  expired.verdict.status = std::move(status);
  for (const auto& [rank, request] : entry.by_rank) expired.announced.push_back(rank);
  return expired;
}

std::vector<Coordinator::Expired> Coordinator::Expire(int64_t now_ns, double seconds) {
  std::vector<Expired> expired;
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    if (at->second.is_plan() || now_ns - at->second.since_ns < seconds * 1e9) {
      ++at;
      continue;
    }
    expired.push_back(
        Expel(at->first, at->second, Status(Code::kDeadlineExceeded, DescribeWaiting(at->first, at->second, now_ns))));
    at = waiting_.erase(at);
  }
  return expired;
}

std::vector<Coordinator::Expired> Coordinator::ExpireWaitingFor(int rank, const std::string& why) {
  std::vector<Expired> expired;
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    if (at->second.by_rank.count(rank) != 0) {
      ++at;
      continue;
    }
    const std::string what = std::string(NameOf(at->second.by_rank.begin()->second.kind)) + " '" + at->first + "'";
    expired.push_back(
        Expel(at->first, at->second, Status(Code::kUnavailable, why + " while " + what + " waited for it.")));
    at = waiting_.erase(at);
  }
  return expired;
}

}  // namespace smddp
