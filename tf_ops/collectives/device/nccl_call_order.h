// The order of calls on a group of GPUs. NCCL requires the same calls in the same order on all members, and the same
// calls together in one launch, but buckets become ready in different orders on different ranks, and the order changes
// from step to step. So each call waits for its turn. The first member assigns turns in the order in which operations
// become ready there, and tells them to the others in small messages along a binomial tree. While earlier calls are
// being launched, what becomes ready is collected for one turn.
//
// The order is not agreed on once and reused. The best order changes (a tensor that others wait for, a rank that
// joins, a second plan), and a bad order costs far more than a message, which travels while the bucket is packed.
// Every rank begins the same operations, so every turn comes.
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
#include "collectives/patterns/binomial_tree.h"
#include "collectives/transfers.h"

namespace smddp {

// Threads: the engine's.
class NcclCallOrder {
 public:
  // Identifies an operation and one of its calls; the same on all ranks.
  using Key = uint32_t;
  static Key KeyOf(uint32_t operation, int call) { return (operation << 8) | static_cast<Key>(call); }
  // Together in one turn at most.
  static constexpr int kMostTogether = 15;

  // Of these ranks, one of which is this one.
  NcclCallOrder(const Fabric& fabric, const Group& members);

  // `key` is ready on this rank. Call it once per turn.
  Status Want(Key key);
  // The calls whose turn it is, in their order, if all of them are ready here; else none. Poll.
  Result<std::vector<Key>> Turn();
  // The calls of this turn have been made.
  void Finish();
  // "waiting for rank 0"
  std::string Describe() const;

 private:
  struct Message {
    uint32_t count = 0;
    Key keys[kMostTogether] = {};
  };
  struct Sent {
    Sent(Transport& transport, const Message& message) : message(message), transfers(transport) {}
    Message message;
    Transfers transfers;
  };

  Status Assign();
  Status Receive();
  Status Add(const Message& message);
  Status DropSent();
  // The keys that are ready here and have no turn yet.
  std::vector<Key> WithoutTurn() const;

  const Fabric& fabric_;
  const Group members_;
  const TreePlace tree_;
  std::deque<std::vector<Key>> turns_;  // that are not over; the front is the current one
  std::vector<Key> wanted_;             // here
  std::list<Sent> sent_;
  Message received_;        // the turn that comes next
  bool receiving_ = false;  // a receive is posted, only while a call waits for its turn
  Transfers recv_;
};

}  // namespace smddp
