// The order of calls on a group of GPUs. NCCL needs the same calls in the same order on all members, but buckets become
// ready in another order on every rank, and which comes first changes from step to step. So whoever has a call to make
// waits for its turn, and the first rank of the node gives the turns out: in the order in which operations became
// ready there, sent to the others by one small message for each.
//
// Not an order that is agreed on once: what the first step's order fits best changes (a tensor that others wait for, a
// rank that joins, a second plan), and an order that no rank is ready in costs far more than a message through shared
// memory, which is on its way while the bucket is packed. No rank asks for what the first one has not begun: all begin
// the same operations. So every turn comes.
//
// A process set has turns of its own, as it has members of its own for NCCL. Its kernels and those of all ranks may
// then start in another order on another GPU, which NCCL allows as long as both have room on a GPU at once; they are
// few blocks each.
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
  // An operation, and which of its calls; the same on all ranks.
  using Key = uint64_t;
  static Key KeyOf(uint32_t operation, int call) { return (Key{operation} << 8) | static_cast<Key>(call); }

  explicit NcclCallOrder(const Fabric& fabric) : fabric_(fabric), recv_(fabric.transport) {}

  // `key` is ready here. Once until its turn is over.
  Status Want(Key key);
  // Is it its turn? Poll.
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
  std::deque<Key> order_;    // turns that are not over; the front has it
  std::vector<Key> wanted_;  // here
  std::list<Sent> sent_;     // by the first rank
  Key received_ = 0;         // the key that comes next
  bool receiving_ = false;   // a receive is posted, only while somebody waits for it
  Transfers recv_;
};

}  // namespace smddp
