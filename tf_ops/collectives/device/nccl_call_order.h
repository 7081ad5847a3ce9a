// The order of calls on a group of GPUs. NCCL requires the same calls in the same order on all members, but buckets
// become ready in different orders on different ranks, and the order changes from step to step. So each call waits
// for its turn. The first rank of the node assigns turns in the order in which operations become ready there, and
// sends each turn to the other ranks in one small message.
//
// The order is not agreed on once and reused. The best order changes (a tensor that others wait for, a rank that
// joins, a second plan), and a bad order costs far more than a message through shared memory, which travels while the
// bucket is packed. Every rank begins the same operations, so every turn comes.
//
// A process set has its own turns, as it has its own NCCL communicator. Its kernels and those of all ranks may start
// in a different order on another GPU. NCCL allows that as long as both fit on a GPU at the same time; they use few
// blocks each.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <vector>

#include "collectives/fabric.h"
#include "collectives/transfers.h"

namespace smddp {

// Threads: the engine's.
class NcclCallOrder {
 public:
  // Identifies an operation and one of its calls; the same on all ranks.
  using Key = uint64_t;
  static Key KeyOf(uint32_t operation, int call) { return (Key{operation} << 8) | static_cast<Key>(call); }

  explicit NcclCallOrder(const Fabric& fabric) : fabric_(fabric), recv_(fabric.transport) {}

  // `key` is ready on this rank. Call it once per turn.
  Status Want(Key key);
  // Is it the turn of `key`? Poll.
  Result<bool> Has(Key key);
  // The calls of this turn have been made.
  void Finish(Key key);
  // "waiting for rank 0"
  std::string Describe() const;

 private:
  struct Sent {
    Sent(Transport& transport, Key key) : key(key), transfers(transport) {}
    Key key;
    Transfers transfers;
  };

  bool leads() const { return fabric_.topology.local_rank() == 0; }
  Status Send(Key key);
  Status DropSent();
  Status Receive();
  bool AllPlaced() const;

  const Fabric& fabric_;
  std::deque<Key> order_;    // turns that are not over; the front is the current one
  std::vector<Key> wanted_;  // here
  std::list<Sent> sent_;     // by the first rank
  Key received_ = 0;         // the key that comes next
  bool receiving_ = false;   // a receive is posted, only while a call waits for its turn
  Transfers recv_;
};

}  // namespace smddp
