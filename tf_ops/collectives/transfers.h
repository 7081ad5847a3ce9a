// A set of sends and receives that are awaited together.
#pragma once

#include <vector>

#include "core/status.h"
#include "topology/topology.h"
#include "transport/transport.h"

namespace smddp {

class Transfers {
 public:
  explicit Transfers(Transport& transport) : transport_(transport) {}

  // Empty buffers are not sent, and large ones are sent in pieces: both sides know the length.
  Status Send(int peer, Tag tag, BufferView bytes);
  Status Recv(int peer, Tag tag, BufferView bytes);
  // True when all that was started has finished.
  Result<bool> AllDone();
  // "waiting for rank 2"
  std::string Describe() const;

 private:
  struct Pending {
    Ticket ticket;
    int peer;
  };
  template <class Start>
  Status ForEachPiece(int peer, BufferView bytes, Start start);

  Transport& transport_;
  std::vector<Pending> pending_;
};

// Calls `visit` with every member of the group but `me`, until it fails. Starts with my right neighbour, so that
// members do not all send to the same one first.
template <class Visit>
Status ForEachPeer(const Group& group, int me, Visit visit) {
  for (int round = 1; round < group.size(); ++round) {
    SMDDP_RETURN_IF_ERROR(visit((me + round) % group.size()));
  }
  return Status::Ok();
}

}  // namespace smddp
