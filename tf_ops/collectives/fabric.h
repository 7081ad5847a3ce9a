// What collectives run on. Assembled by the session, used by every collective.
#pragma once

#include "collectives/rail/selector.h"
#include "compute/compute.h"
#include "topology/topology.h"
#include "transport/shm/node_channel.h"
#include "transport/transport.h"

namespace smddp {

// Ownership: the engine's; all of it outlives every task.
struct Fabric {
  const Topology& topology;
  NodeChannel& node;     // the ranks of my node
  Transport& transport;  // to all ranks
  const Compute& compute;
  int64_t chunk_bytes;  // of the wire dtype; equal on all ranks
  RailChoice rail;
};

// How many chunks of one operation are under way at a time. More across nodes: that keeps the link busy while chunks
// wait for one another.
inline int ChunksInFlight(const Topology& topology) {
  constexpr int kInNode = 4, kAcrossNodes = 8;
  static_assert(kAcrossNodes <= kMaxStepsInFlight);
  return topology.node_count() > 1 ? kAcrossNodes : kInNode;
}

// The stages of an operation, as they appear in tags.
constexpr uint8_t kNodeReduceScatterStage = 0;
constexpr uint8_t kRailReduceScatterStage = 1;
constexpr uint8_t kRailAllgatherStage = 2;
constexpr uint8_t kNodeAllgatherStage = 3;
static_assert(kNodeAllgatherStage <= kMaxStage);

}  // namespace smddp
