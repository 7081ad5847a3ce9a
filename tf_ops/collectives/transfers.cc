#include "collectives/transfers.h"

namespace smddp {

Status Transfers::Add(int peer, Result<Ticket> ticket) {
  if (ticket.ok()) pending_.push_back({*ticket, peer});
  return ticket.status();
}

Status Transfers::Send(int peer, Tag tag, BufferView bytes) {
  return bytes.size == 0 ? Status::Ok() : Add(peer, transport_.Send(peer, tag, bytes));
}

Status Transfers::Recv(int peer, Tag tag, BufferView bytes) {
  return bytes.size == 0 ? Status::Ok() : Add(peer, transport_.Recv(peer, tag, bytes));
}

Result<bool> Transfers::AllDone() {
  for (auto at = pending_.begin(); at != pending_.end();) {
    SMDDP_ASSIGN_OR_RETURN(const bool done, transport_.Test(at->ticket));
    at = done ? pending_.erase(at) : std::next(at);
  }
  return pending_.empty();
}

std::string Transfers::Describe() const {
  return pending_.empty() ? "nothing to wait for" : "waiting for rank " + std::to_string(pending_.front().peer);
}

}  // namespace smddp
