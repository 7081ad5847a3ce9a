// The ranks that have ended their sessions of this process set or of all ranks, and who tells whom at the end of a
// program, so that not every rank must be connected to every other.
//
// A rank whose program ends tells the ranks of its node, and those that it has sent control messages to, so that none
// overtakes another. Then it reads until all ranks have left. The reader of its node, the first rank there that still
// reads, tells the readers of the other nodes, and each tells its node. A rank that stops reading before all have left
// tells everybody itself; when it was the reader of its node, the next one is told again what it may have missed.
// Pure logic: the caller sends the messages.
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
  // `topology` outlives it.
  explicit Departures(const Topology& topology) : topology_(topology) {}

  struct Forward {
    std::vector<int> to;
    Departed what;
  };
  // `rank`, which may be this one, has left. Returns what this rank passes on.
  std::vector<Forward> Add(int rank, const Goodbye& goodbye, int64_t now_ns);
  bool has(int rank) const { return left_.count(rank) != 0; }
  // Does that rank, which has left, still read messages of this one?
  bool listens(int rank) const { return left_.at(rank).goodbye.listens; }
  // Has every other rank of the session left?
  bool all_left() const {
    return static_cast<int>(left_.size() - left_.count(topology_.rank())) >= topology_.size() - 1;
  }
  // The other ranks that have left and whose messages have all arrived.
  std::vector<int> Silent(int64_t now_ns) const;
  // "Rank 2 has ended its session (...)"
  std::string Sentence(int rank) const;
  // The first rank of a node that still reads; -1: none.
  int ReaderOf(int node) const;
  // Of all other nodes that have one.
  std::vector<int> OtherReaders() const;

 private:
  struct Departure {
    Goodbye goodbye;
    int64_t when_ns = 0;
  };

  bool Reads(int rank) const { return !has(rank) || listens(rank); }
  // The ranks of a node that have left and leave it to their reader to tell others.
  Departed RelayedOf(int node) const;
  std::vector<int> Mates() const;  // the other ranks of this node that read

  const Topology& topology_;
  std::map<int, Departure> left_;
};

}  // namespace smddp
