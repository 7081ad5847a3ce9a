#include "runtime/health/heartbeat.h"

#include <algorithm>
#include <cstdio>

namespace smddp {
namespace {

// Fractions of the timeout. The ranks of a silent rank's own node report first, because they can name it.
// kHostShare is of a host whose kernel does not answer; with a beat, three ticks, it makes three seconds of fifteen.
constexpr double kLocalShare = 0.82, kNodeShare = 0.9, kHostShare = 0.15, kBeatShare = 1.0 / 30, kPauseShare = 0.15;

std::string Ranks(const std::vector<int>& ranks) { return (ranks.size() == 1 ? "rank " : "ranks ") + Listed(ranks); }

}  // namespace

Heartbeat::Heartbeat(const Topology& topology, const Departures& departures, double timeout_s)
    : topology_(topology),
      departures_(departures),
      timeout_s_(timeout_s),
      node_heard_ns_(topology.node_count(), 0),
      unanswered_ns_(topology.node_count(), 0) {}

void Heartbeat::Tick(int64_t now_ns) {
  if (ticked_ns_ == 0 || now_ns - ticked_ns_ > timeout_s_ * kPauseShare * 1e9) forgiven_ns_ = now_ns;
  ticked_ns_ = now_ns;
  if (!Speaks()) spoken_to_since_ns_ = now_ns;
}

std::vector<int> Heartbeat::Due(int64_t now_ns) {
  if (timeout_s_ <= 0 || !Speaks()) return {};
  if (sent_ns_ != 0 && now_ns - sent_ns_ < timeout_s_ * kBeatShare * 1e9) return {};
  sent_ns_ = now_ns;
  return departures_.OtherReaders();
}

std::optional<std::string> Heartbeat::FindLost(int64_t now_ns, const SignsOf& signs_of) {
  if (auto dead = FindDead(signs_of)) return dead;
  if (timeout_s_ <= 0) return std::nullopt;
  if (auto silent = FindSilentMate(now_ns, signs_of)) return silent;
  return FindSilentNode(now_ns);
}

std::optional<std::string> Heartbeat::FindDead(const SignsOf& signs_of) {
  std::vector<int> without_lock, dead;
  for (int member = 0; member < topology_.local_size(); ++member) {
    const int rank = topology_.node().world_rank(member);
    if (rank == topology_.rank() || departures_.has(rank) || !signs_of(member).dead) continue;
    without_lock.push_back(rank);
    if (std::count(suspects_.begin(), suspects_.end(), rank) != 0) dead.push_back(rank);
  }
  suspects_ = without_lock;
  if (dead.empty()) return std::nullopt;
  return Died(dead);
}

std::string Heartbeat::Died(const std::vector<int>& dead) const {
  return "R" + Ranks(dead).substr(1) + " (host " + topology_.host_name(dead.front()) +
         (dead.size() == 1 ? ") has died: its process" : ") have died: their processes") +
         " ended without hvd.shutdown(), by a signal or a crash.";
}

std::string Heartbeat::Missed(const char* what, const std::vector<int>& ranks, int64_t ns) const {
  char seconds[32];
  snprintf(seconds, sizeof(seconds), "%.1f", ns * 1e-9);
  return Concat(what, Ranks(ranks), " (host ", topology_.host_name(ranks.front()), ") for ", seconds,
                " s (SMDDP_HEARTBEAT_TIMEOUT): ");
}

std::optional<std::string> Heartbeat::FindSilentMate(int64_t now_ns, const SignsOf& signs_of) const {
  std::vector<int> silent;
  int64_t last_ns = 0;
  for (int member = 0; member < topology_.local_size(); ++member) {
    const int rank = topology_.node().world_rank(member);
    if (rank == topology_.rank() || departures_.has(rank)) continue;
    const int64_t seen_ns = std::max(signs_of(member).beat_ns, forgiven_ns_);
    if (now_ns - seen_ns < timeout_s_ * kLocalShare * 1e9) continue;
    silent.push_back(rank);
    last_ns = std::max(last_ns, seen_ns);
  }
  if (silent.empty()) return std::nullopt;
  return Missed("No sign of life from ", silent, now_ns - last_ns) + (silent.size() == 1 ? "it is" : "they are") +
         " stopped, or cannot run on that host.";
}

std::optional<std::string> Heartbeat::FindSilentNode(int64_t now_ns) const {
  if (!Speaks()) return std::nullopt;
  for (int node = 0; node < topology_.node_count(); ++node) {
    if (node == topology_.node_index()) continue;
    const int64_t silent_ns = now_ns - std::max({node_heard_ns_[node], forgiven_ns_, spoken_to_since_ns_});
    const int64_t unanswered_ns = std::min(unanswered_ns_[node], silent_ns);
    const bool is_cut = unanswered_ns > timeout_s_ * kHostShare * 1e9;
    if (silent_ns < timeout_s_ * kNodeShare * 1e9 && !is_cut) continue;
    std::vector<int> ranks;
    for (int rank : topology_.nodes()[node].world_ranks()) {
      if (!departures_.has(rank)) ranks.push_back(rank);
    }
    if (ranks.empty()) continue;
    if (is_cut)
      return Missed("No answer from ", ranks, unanswered_ns) + "that host is down, or the network to it is cut.";
    return Missed("No sign of life from ", ranks, silent_ns) +
           "that host is down or frozen, or the network to it is cut.";
  }
  return std::nullopt;
}

}  // namespace smddp
