// hvd.join: which ranks have no more data, and when all have. Pure logic, no I/O (docs/decisions/0012-join.md).
//
// Rounds. A round ends when all ranks have joined; the next begins with everybody back. A rank joins once in each
// round, so how often it has joined says in which round it is, whatever else this rank has heard.
//
// Threads: the engine's.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/announcement.h"
#include "runtime/session.h"

namespace smddp {

class JoinTable {
 public:
  explicit JoinTable(int size) : joins_(size, 0) {}

  // --- All ranks ---
  // Rounds that are over, as far as this rank has heard.
  uint32_t round() const { return round_; }
  bool has_joined(int rank, uint32_t round) const { return joins_[rank] > round; }
  bool has_joined(int rank) const { return has_joined(rank, round_); }
  // Has any rank joined the current round?
  bool anyone() const;
  // `rank` has no more data.
  void Add(int rank) { ++joins_[rank]; }

  // --- This rank's call ---
  void Begin(int* last, DoneCallback done, int64_t now_ns);
  // From Begin to End.
  bool waiting() const { return done_ != nullptr; }
  // All ranks have joined; what they have under way goes on.
  bool ending() const { return ending_; }
  int64_t since_ns() const { return since_ns_; }
  void SetDrained() { drained_ = true; }
  bool drained() const { return drained_; }
  // The round is over: the next one begins.
  void Over(int last);
  void End(const Status& status);

  // --- Rank 0: the one that decides ---
  // Set once all ranks have joined the round and none of them waits for a request of its own any more.
  std::optional<JoinOver> Decide(int from, const JoinNotice& notice);

 private:
  std::vector<uint32_t> joins_;  // by rank: how often it has joined
  uint32_t round_ = 0;

  int* last_ = nullptr;
  DoneCallback done_;
  int64_t since_ns_ = 0;
  bool ending_ = false, drained_ = false;

  JoinOver next_;  // rank 0: of the round under way
  int joined_ranks_ = 0, drained_ranks_ = 0;
};

}  // namespace smddp
