// Sends and receives that are awaited together, and tasks that are made of them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "collectives/task.h"
#include "topology/topology.h"
#include "transport/transport.h"

namespace smddp {

class Transfers {
 public:
  explicit Transfers(Transport& transport) : transport_(transport) {}

  // Empty buffers are not sent, and large ones are sent in pieces: both sides know the length.
  Status Send(int peer, Tag tag, BufferView bytes);
  Status Recv(int peer, Tag tag, BufferView bytes);
  // Both with one peer.
  Status Swap(int peer, Tag tag, BufferView out, BufferView in);
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

// A task of stages, each of which starts transfers when all of those before it have finished; it is done when the last
// ones have. Messages about it begin with `name`.
using TransferStage = std::function<Status(Transfers* transfers)>;
TaskPtr InStages(std::string name, Transport& transport, std::vector<TransferStage> stages);

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
