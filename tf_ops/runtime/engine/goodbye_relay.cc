#include "runtime/engine/goodbye_relay.h"

#include <algorithm>

namespace smddp {
namespace {

bool IsRelayed(const Goodbye& goodbye) { return goodbye.clean && goodbye.listens; }

std::vector<int> Without(const std::vector<int>& told, std::vector<int> ranks) {
  const auto is_told = [&](int rank) { return std::count(told.begin(), told.end(), rank) != 0; };
  ranks.erase(std::remove_if(ranks.begin(), ranks.end(), is_told), ranks.end());
  return ranks;
}

}  // namespace

bool GoodbyeRelay::Reads(int rank) const {
  const auto at = left_.find(rank);
  return at == left_.end() || at->second.listens;
}

int GoodbyeRelay::ReaderOf(int node) const {
  for (const int rank : topology_.nodes()[node].world_ranks()) {
    if (Reads(rank)) return rank;
  }
  return -1;
}

Departed GoodbyeRelay::RelayedOf(int node) const {
  Departed departed;
  for (const auto& [rank, goodbye] : left_) {
    if (topology_.node_of(rank) == node && IsRelayed(goodbye)) departed.ranks.emplace_back(rank, goodbye);
  }
  return departed;
}

std::vector<int> GoodbyeRelay::OtherReaders() const {
  std::vector<int> readers;
  for (int node = 0; node < topology_.node_count(); ++node) {
    const int reader = ReaderOf(node);
    if (node != topology_.node_index() && reader >= 0) readers.push_back(reader);
  }
  return readers;
}

std::vector<int> GoodbyeRelay::Mates() const {
  std::vector<int> mates;
  for (const int rank : topology_.node().world_ranks()) {
    if (rank != topology_.rank() && Reads(rank)) mates.push_back(rank);
  }
  return mates;
}

std::vector<GoodbyeRelay::Forward> GoodbyeRelay::Left(int rank, const Goodbye& goodbye) {
  const int mine = topology_.node_index(), its = topology_.node_of(rank);
  const bool was_reader = ReaderOf(its) == rank;
  left_[rank] = goodbye;
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

}  // namespace smddp
