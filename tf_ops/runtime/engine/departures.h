// The ranks that have ended their sessions of this process set or of all ranks.
//
// Threads: the engine's.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/control/messages.h"
#include "topology/topology.h"

namespace smddp {

class Departures {
 public:
  explicit Departures(const Topology& topology) : topology_(topology) {}

  void Add(int rank, const Goodbye& goodbye, int64_t now_ns);
  bool has(int rank) const { return ranks_.count(rank) != 0; }
  // Has every other rank of the session left?
  bool all_left() const { return static_cast<int>(ranks_.size()) >= topology_.size() - 1; }
  // Does that rank, which has left, still read messages of this one?
  bool listens(int rank) const { return ranks_.at(rank).listens; }
  // The ranks that have left and whose messages have all arrived.
  std::vector<int> Silent(int64_t now_ns) const;
  // "Rank 2 has ended its session (...)"
  std::string Sentence(int rank) const;

 private:
  struct Departure {
    int64_t when_ns = 0;
    bool listens = false;
  };
  const Topology& topology_;
  std::map<int, Departure> ranks_;
};

}  // namespace smddp
