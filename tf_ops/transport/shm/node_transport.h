// Plain messages between the ranks of a node: copied into a slot and out of it, piece by piece. For data that need
// not be read in place (broadcast, allgather, control).
#pragma once

#include <atomic>
#include <list>
#include <unordered_set>

#include "topology/topology.h"
#include "transport/shm/node_control.h"
#include "transport/transport.h"

namespace smddp {

// Peers are world ranks, all of them members of `node`.
class NodeTransport : public Transport {
 public:
  NodeTransport(Group node, NodeChannel& channel) : node_(std::move(node)), channel_(channel), control_(channel) {}

  Result<Ticket> Send(int peer, Tag tag, BufferView bytes) override { return Add(&sends_, peer, tag, bytes); }
  Result<Ticket> Recv(int peer, Tag tag, BufferView bytes) override { return Add(&receives_, peer, tag, bytes); }
  Result<bool> Test(Ticket ticket) override { return done_.erase(ticket) > 0; }
  Status Post(int peer, std::string message) override;
  bool Poll(Message* message) override;
  void Forget(int peer) override { control_.Forget(node_.position_of(peer)); }
  Result<bool> Progress() override;
  bool busy() const override { return !sends_.empty() || !receives_.empty() || control_.busy(); }
  bool rings_doorbell() const override { return true; }
  int64_t bytes_sent() const override { return bytes_sent_; }
  bool Abort() override;

 private:
  struct Transfer {
    Ticket ticket;
    int peer;  // position in the node
    Tag tag;
    BufferView bytes;
    size_t moved = 0;
  };

  Ticket Add(std::list<Transfer>* list, int peer, Tag tag, BufferView bytes);
  bool StepSend(Transfer* send, bool* moved);
  Result<bool> StepReceive(Transfer* receive, bool* moved);

  Group node_;
  NodeChannel& channel_;
  NodeControl control_;
  Ticket next_ticket_ = 1;
  std::atomic<int64_t> bytes_sent_{0};
  std::list<Transfer> sends_, receives_;  // in order: messages with equal tags are matched in the order of the calls
  std::unordered_set<Ticket> done_;
};

}  // namespace smddp
