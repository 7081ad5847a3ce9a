// Assembles and owns what collectives run on.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "collectives/fabric.h"
#include "core/env/env.h"
#include "topology/topology.h"
#include "transport/routed.h"
#include "transport/shm/node_channel.h"
#include "transport/shm/node_transport.h"

namespace smddp {

class FabricParts {
 public:
  // `env.chunk_bytes` is decided. `segments[p]`: the memory of my node's member p, kept alive by `memory`. `far`
  // reaches the ranks of other nodes and may be null when there are none. `lives` returns whether a member's process is
  // alive; null: always true. `tensors[p]`: the memory of member p's tensors, kept alive as well; none: not shared.
  FabricParts(Topology topology, const Env& env, const RailChoice& rail, std::vector<std::byte*> segments,
              std::shared_ptr<void> memory, std::unique_ptr<Transport> far,
              std::function<bool(int member)> lives = nullptr, std::vector<BufferView> tensors = {});

  static NodeLayout LayoutFor(const Topology& topology, const Env& env);

  const Fabric& fabric() const { return fabric_; }
  NodeChannel& node() { return node_; }
  Transport& transport() { return transport_; }
  // Data handed to ranks of other nodes so far.
  int64_t rail_bytes() const { return far_ != nullptr ? far_->bytes_sent() - sent_before_ : 0; }
  // Lets MPI make progress on the program's own messages, where the engine itself does not use MPI.
  Status LetMpiMove() { return far_ != nullptr ? far_->Progress().status() : Status::Ok(); }
  bool Lives(int member) const { return !lives_ || lives_(member); }
  size_t arena_bytes() const { return layout_.total_bytes; }

 private:
  const Topology topology_;
  const std::shared_ptr<void> memory_;
  const std::function<bool(int member)> lives_;
  const NodeLayout layout_;
  NodeChannel node_;
  NodeTransport near_;
  const std::unique_ptr<Transport> far_;
  const int64_t sent_before_;  // by `far`, while the link was measured
  RoutedTransport transport_;
  const Fabric fabric_;
};

}  // namespace smddp
