// The subject of the whole library: reduce inside the node, exchange equal shards between the nodes, gather inside the
// node, chunk by chunk, so that every stage of one chunk runs beside another stage of its neighbours.
//
// After Herring (Thangakrishnan et al., SC20) and SMDDP's balanced fusion buffers: every rank is the reducer for an
// equal part of every chunk, so no link and no core has more to do than another.
#pragma once

#include "collectives/node/chunk.h"
#include "collectives/rail/algorithm.h"
#include "collectives/task.h"

namespace smddp {

// Cuts a call into chunks of the fabric's size, some of which are under way at a time; the same on all ranks. `chunk`
// makes the task for a part of the elements.
TaskPtr InChunks(const Fabric& fabric, int64_t elements, DType wire,
                 std::function<TaskPtr(int index, Range range)> chunk);

// Every rank makes the same call (views may be cut into pieces differently). `fabric` and the view outlive the task.
TaskPtr HierarchicalAllreduce(const Fabric& fabric, const AllreduceAlgorithm& rail, const FusedCall& call);

}  // namespace smddp
