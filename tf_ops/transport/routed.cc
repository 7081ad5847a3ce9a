#include "transport/routed.h"

namespace smddp {
namespace {

// The lowest bit of a ticket says which side issued it.
Result<Ticket> Mark(Result<Ticket> ticket, bool near) {
  if (ticket.ok()) *ticket = (*ticket << 1) | (near ? 1 : 0);
  return ticket;
}

}  // namespace

RoutedTransport::RoutedTransport(const Topology& topology, Transport* near, Transport* far) : near_(near), far_(far) {
  for (int rank = 0; rank < topology.size(); ++rank) {
    is_near_.push_back(topology.node_of(rank) == topology.node_index());
  }
}

Result<Ticket> RoutedTransport::Send(int peer, Tag tag, BufferView bytes) {
  return Mark(For(peer).Send(peer, tag, bytes), is_near_[peer]);
}

Result<Ticket> RoutedTransport::Recv(int peer, Tag tag, BufferView bytes) {
  return Mark(For(peer).Recv(peer, tag, bytes), is_near_[peer]);
}

Result<bool> RoutedTransport::Test(Ticket ticket) { return ((ticket & 1) != 0 ? near_ : far_)->Test(ticket >> 1); }

bool RoutedTransport::Poll(Message* message) {
  return (near_ != nullptr && near_->Poll(message)) || (far_ != nullptr && far_->Poll(message));
}

Result<bool> RoutedTransport::Progress() {
  bool moved = false;
  for (Transport* side : {near_, far_}) {
    if (side == nullptr) continue;
    SMDDP_ASSIGN_OR_RETURN(const bool some, side->Progress());
    moved |= some;
  }
  return moved;
}

bool RoutedTransport::busy() const { return (near_ != nullptr && near_->busy()) || (far_ != nullptr && far_->busy()); }

bool RoutedTransport::rings_doorbell() const {
  return (near_ == nullptr || near_->rings_doorbell()) && (far_ == nullptr || far_->rings_doorbell());
}

int64_t RoutedTransport::bytes_sent() const {
  return (near_ != nullptr ? near_->bytes_sent() : 0) + (far_ != nullptr ? far_->bytes_sent() : 0);
}

bool RoutedTransport::Abort() {
  const bool near_quiet = near_ == nullptr || near_->Abort();
  const bool far_quiet = far_ == nullptr || far_->Abort();
  return near_quiet && far_quiet;
}

}  // namespace smddp
