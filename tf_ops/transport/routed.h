// One transport to all ranks, made of two: `near` for the ranks of my node, `far` for the others.
#pragma once

#include <string>
#include <vector>

#include "topology/topology.h"
#include "transport/transport.h"

namespace smddp {

// `far` may be null when no rank is there. All outlive it.
class RoutedTransport : public Transport {
 public:
  RoutedTransport(const Topology& topology, Transport& near, Transport* far)
      : topology_(topology), near_(near), far_(far) {}

  Result<Ticket> Send(int peer, Tag tag, BufferView bytes) override;
  Result<Ticket> Recv(int peer, Tag tag, BufferView bytes) override;
  Result<bool> Test(Ticket ticket) override { return ((ticket & 1) != 0 ? near_ : *far_).Test(ticket >> 1); }
  Status Post(int peer, std::string message) override { return For(peer).Post(peer, std::move(message)); }
  bool Poll(Message* message) override { return near_.Poll(message) || (far_ != nullptr && far_->Poll(message)); }
  void Forget(int peer) override { For(peer).Forget(peer); }
  Result<bool> Progress() override;
  bool busy() const override { return near_.busy() || (far_ != nullptr && far_->busy()); }
  bool rings_doorbell() const override { return near_.rings_doorbell() && (far_ == nullptr || far_->rings_doorbell()); }
  int64_t bytes_sent() const override { return near_.bytes_sent() + (far_ != nullptr ? far_->bytes_sent() : 0); }
  std::vector<int> lost() const override { return far_ != nullptr ? far_->lost() : std::vector<int>(); }
  int64_t UnansweredNs(int peer) override { return For(peer).UnansweredNs(peer); }
  bool Abort() override;

 private:
  bool IsNear(int peer) const { return topology_.node_of(peer) == topology_.node_index(); }
  Transport& For(int peer) { return IsNear(peer) ? near_ : *far_; }

  const Topology& topology_;
  Transport& near_;
  Transport* far_;
};

}  // namespace smddp
