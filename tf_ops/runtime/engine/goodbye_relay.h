// Who tells whom that a rank has left at the end of its program, so that not every rank must be connected to every
// other.
//
// A rank whose program ends tells the ranks of its node, and those that it has sent control messages to, so that none
// overtakes another. Then it reads until all ranks have left. The reader of its node, the first rank there that still
// reads, tells the readers of the other nodes, and each tells its node. A rank that stops reading before all have left
// tells everybody itself; when it was the reader of its node, the next one is told again what it may have missed.
// Pure logic: the caller sends the messages.
//
// Threads: the engine's.
#pragma once

#include <map>
#include <vector>

#include "runtime/control/messages.h"
#include "topology/topology.h"

namespace smddp {

class GoodbyeRelay {
 public:
  // `topology` outlives it.
  explicit GoodbyeRelay(const Topology& topology) : topology_(topology) {}

  struct Forward {
    std::vector<int> to;
    Departed what;
  };
  // `rank`, which may be this one, has left. Returns what this rank passes on.
  std::vector<Forward> Left(int rank, const Goodbye& goodbye);

 private:
  bool Reads(int rank) const;
  int ReaderOf(int node) const;  // -1: none
  // The ranks of a node that have left and leave it to their reader to tell others.
  Departed RelayedOf(int node) const;
  std::vector<int> OtherReaders() const;
  std::vector<int> Mates() const;  // the other ranks of this node that read

  const Topology& topology_;
  std::map<int, Goodbye> left_;
};

}  // namespace smddp
