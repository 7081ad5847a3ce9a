#include "collectives/transfers.h"

#include <algorithm>

namespace smddp {
namespace {

constexpr size_t kMessageBytes = 64 << 20;  // MPI counts in int; shared memory splits further by itself

}  // namespace

// All pieces have the same tag: between two ranks they are matched in order.
template <class Start>
Status Transfers::ForEachPiece(int peer, BufferView bytes, Start start) {
  for (size_t at = 0; at < bytes.size; at += kMessageBytes) {
    SMDDP_ASSIGN_OR_RETURN(const Ticket ticket, start(bytes.Slice(at, std::min(kMessageBytes, bytes.size - at))));
    pending_.push_back({ticket, peer});
  }
  return Status::Ok();
}

Status Transfers::Send(int peer, Tag tag, BufferView bytes) {
  return ForEachPiece(peer, bytes, [&](BufferView piece) { return transport_.Send(peer, tag, piece); });
}

Status Transfers::Recv(int peer, Tag tag, BufferView bytes) {
  return ForEachPiece(peer, bytes, [&](BufferView piece) { return transport_.Recv(peer, tag, piece); });
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
