#include "transport/routed.h"

namespace smddp {
namespace {

// The lowest bit of a ticket says which side issued it.
Result<Ticket> Mark(Result<Ticket> ticket, bool near) {
  if (ticket.ok()) *ticket = (*ticket << 1) | (near ? 1 : 0);
  return ticket;
}

}  // namespace

Result<Ticket> RoutedTransport::Send(int peer, Tag tag, BufferView bytes) {
  return Mark(For(peer).Send(peer, tag, bytes), IsNear(peer));
}

Result<Ticket> RoutedTransport::Recv(int peer, Tag tag, BufferView bytes) {
  return Mark(For(peer).Recv(peer, tag, bytes), IsNear(peer));
}

Result<bool> RoutedTransport::Progress() {
  SMDDP_ASSIGN_OR_RETURN(const bool moved, near_.Progress());
  if (far_ == nullptr) return moved;
  SMDDP_ASSIGN_OR_RETURN(const bool far_moved, far_->Progress());
  return moved || far_moved;
}

bool RoutedTransport::Abort() {
  const bool near_quiet = near_.Abort();
  const bool far_quiet = far_ == nullptr || far_->Abort();
  return near_quiet && far_quiet;
}

}  // namespace smddp
