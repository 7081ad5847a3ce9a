// The subject of the whole library: reduce inside the node, exchange equal shards between the nodes, gather inside the
// node, chunk by chunk, so that every stage of one chunk runs beside another stage of its neighbours.
//
// After Herring (Thangakrishnan et al., SC20) and SMDDP's balanced fusion buffers: every rank is the reducer for an
// equal part of every chunk, so no link and no core has more to do than another.
#pragma once

#include "collectives/algorithm.h"
#include "collectives/node/chunk.h"
#include "collectives/task.h"

namespace smddp {

// How a call is cut into chunks; the same on all ranks.
struct Chunking {
  int64_t bytes = 0;  // of the wire dtype, at most the fabric's; 0: the fabric's
  int in_flight = 0;  // at most kMaxStepsInFlight; 0: DefaultChunksInFlight
};
int DefaultChunksInFlight(const Topology& topology);
// One after another as far as `chunking` allows side by side. `chunk` makes the task for a part of the elements.
TaskPtr InChunks(const Fabric& fabric, const Chunking& chunking, int64_t elements, DType wire,
                 std::function<TaskPtr(int index, Range range)> chunk);

// Every rank makes the same call (views may be cut into pieces differently). `fabric` and the view outlive the task.
TaskPtr HierarchicalAllreduce(const Fabric& fabric, const AllreduceAlgorithm& rail, const FusedCall& call,
                              const Chunking& chunking = Chunking());

}  // namespace smddp
