// Which ranks have called hvd.join, in rounds: a round is over when all ranks have called it.
//
// Threads: the engine's.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace smddp {

class JoinRounds {
 public:
  explicit JoinRounds(int size) : joins_(size, 0) {}

  // The number of completed rounds, as far as this rank knows.
  uint32_t round() const { return round_; }
  bool has_joined(int rank, uint32_t round) const { return joins_[rank] > round; }
  bool has_joined(int rank) const { return has_joined(rank, round_); }
  // Ranks that have joined that round.
  size_t count(uint32_t round) const {
    const auto joined = [round](uint32_t joins) { return joins > round; };
    return static_cast<size_t>(std::count_if(joins_.begin(), joins_.end(), joined));
  }
  // Has any rank joined the current round?
  bool anyone() const { return count(round_) > 0; }
  void Add(int rank) { ++joins_[rank]; }
  void EndRound() { ++round_; }

 private:
  std::vector<uint32_t> joins_;  // by rank: how often it has called hvd.join
  uint32_t round_ = 0;
};

}  // namespace smddp
