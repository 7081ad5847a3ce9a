#include "runtime/health/departures.h"

#include <algorithm>

#include "core/process/log.h"

namespace smddp {
namespace {

// Messages that a rank sent before it left arrive within this time.
constexpr int64_t kGraceNs = 1000 * 1000000LL;

bool IsRelayed(const Goodbye& goodbye) { return goodbye.clean && goodbye.listens; }

std::vector<int> Without(const std::vector<int>& told, std::vector<int> ranks) {
  const auto is_told = [&](int rank) { return std::count(told.begin(), told.end(), rank) != 0; };
  ranks.erase(std::remove_if(ranks.begin(), ranks.end(), is_told), ranks.end());
  return ranks;
}

}  // namespace

std::vector<Departures::Forward> Departures::Add(int rank, const Goodbye& goodbye, int64_t now_ns) {
  if (rank != topology_.rank()) {
    Log(LogLevel::kDebug, NamedWithHost(topology_, rank), " has ended its session",
        topology_.is_process_set() ? " of a process set" : "", goodbye.clean ? "" : " with operations under way");
  }
  const int mine = topology_.node_index(), its = topology_.node_of(rank);
  const bool was_reader = ReaderOf(its) == rank;
  left_[rank] = {goodbye, now_ns};
  if (ReaderOf(mine) != topology_.rank()) return {};
  std::vector<Forward> forwards;
  if (IsRelayed(goodbye)) {
    forwards.push_back({Without(goodbye.told, its == mine ? OtherReaders() : Mates()), {{{rank, goodbye}}}});
  } else if (was_reader && its == mine) {
    forwards.push_back({OtherReaders(), RelayedOf(mine)});
    for (int node = 0; node < topology_.node_count(); ++node) {
      if (node != mine) forwards.push_back({Mates(), RelayedOf(node)});
    }
  } else if (was_reader && ReaderOf(its) >= 0) {
    forwards.push_back({{ReaderOf(its)}, RelayedOf(mine)});
  }
  const auto is_void = [](const Forward& forward) { return forward.to.empty() || forward.what.ranks.empty(); };
  forwards.erase(std::remove_if(forwards.begin(), forwards.end(), is_void), forwards.end());
  return forwards;
}

std::vector<int> Departures::Silent(int64_t now_ns) const {
  std::vector<int> silent;
  for (const auto& [rank, departure] : left_) {
    if (rank != topology_.rank() && now_ns - departure.when_ns >= kGraceNs) silent.push_back(rank);
  }
  return silent;
}

std::string Departures::Sentence(int rank) const {
  return "Rank " + std::to_string(topology_.global_rank(rank)) +
         " has ended its session (hvd.shutdown, an exception or the end of its program)";
}

int Departures::ReaderOf(int node) const {
  for (const int rank : topology_.nodes()[node].world_ranks()) {
    if (Reads(rank)) return rank;
  }
  return -1;
}

Departed Departures::RelayedOf(int node) const {
  Departed departed;
  for (const auto& [rank, departure] : left_) {
    const bool relayed = topology_.node_of(rank) == node && IsRelayed(departure.goodbye);
    if (relayed) departed.ranks.emplace_back(rank, departure.goodbye);
  }
  return departed;
}

std::vector<int> Departures::OtherReaders() const {
  std::vector<int> readers;
  for (int node = 0; node < topology_.node_count(); ++node) {
    const int reader = ReaderOf(node);
    if (node != topology_.node_index() && reader >= 0) readers.push_back(reader);
  }
  return readers;
}

std::vector<int> Departures::Mates() const {
  std::vector<int> mates;
  for (const int rank : topology_.node().world_ranks()) {
    if (rank != topology_.rank() && Reads(rank)) mates.push_back(rank);
  }
  return mates;
}

}  // namespace smddp
