// A set of sends and receives that are awaited together.
#pragma once

#include <vector>

#include "core/status.h"
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

}  // namespace smddp
