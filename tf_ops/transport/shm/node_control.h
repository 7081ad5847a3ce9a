// Control messages between the ranks of a node: in pieces, through slots of a pool of their own, so that data never
// delay them.
//
// Threads: one, the engine's.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "transport/shm/node_channel.h"
#include "transport/transport.h"

namespace smddp {

// Peers, and Message::from, are positions in the node.
class NodeControl {
 public:
  // `channel` outlives it.
  explicit NodeControl(NodeChannel& channel) : channel_(channel), half_read_(channel.size()) {}

  void Post(int peer, std::string message);
  bool Poll(Message* message) { return TakeOldest(&inbox_, message); }
  // A peer that has left reads nothing any more: drops the messages queued for it.
  void Forget(int peer);

  // Reads the pieces that have arrived (by NodeChannel::Progress) and sends waiting messages; true when one was sent.
  // An error: no correct rank sends that.
  Result<bool> Progress();
  bool busy() const { return !outgoing_.empty(); }

 private:
  struct Outgoing {
    int peer;
    std::string bytes;
    size_t sent = 0;
  };

  bool Send();
  int InFlight(int peer) const;

  NodeChannel& channel_;
  std::vector<std::string> half_read_;  // by sender: the message that is arriving
  std::deque<Message> inbox_;
  std::deque<Outgoing> outgoing_;
  int reader_[NodeLayout::kSlotsPerPool] = {};  // the last receiver of the slot
};

}  // namespace smddp
