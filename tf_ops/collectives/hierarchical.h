// The central algorithm of this library: reduce inside the node, exchange equal slices between the nodes, gather
// inside the node. It works chunk by chunk, so that different stages of neighbouring chunks overlap.
//
// After Herring (Thangakrishnan et al., SC20) and SMDDP's balanced fusion buffers: every rank is the reducer for an
// equal part of every chunk, so the load of links and cores is balanced.
#pragma once

#include "collectives/node/chunk.h"
#include "collectives/rail/algorithm.h"
#include "collectives/task.h"

namespace smddp {

// Cuts a call into chunks of the fabric's size, the same on all ranks; a limited number is under way at a time.
// `chunk` makes the task for a range of elements. `chunk_elements`: instead of the fabric's size.
TaskPtr InChunks(const Fabric& fabric, int64_t elements, DType wire,
                 std::function<TaskPtr(int index, Range range)> chunk, int64_t chunk_elements = 0);

// Allreduces a call: reduce-scatter in the node, `rail` between the nodes, allgather in the node. For a view made by
// MakePartedView (collectives/node/parts.h) only its half runs: the sum of this rank's part, or the gather of all
// parts; parts that cross nodes are summed by direct exchange.
// Every rank makes the same call (views may be cut into pieces differently). `fabric` and the view outlive the task.
TaskPtr HierarchicalAllreduce(const Fabric& fabric, const AllreduceAlgorithm& rail, const FusedCall& call);

// hierarchical_allgather.cc: every rank's bytes to all ranks.
// `blocks[r]` is where rank r's bytes lie on this rank, in any number of pieces; my own are filled in already. Of
// equal lengths in total on all ranks; they may be 0. `fabric` outlives the task.
TaskPtr HierarchicalAllgather(const Fabric& fabric, uint32_t operation,
                              const std::vector<std::vector<BufferView>>& blocks);

// Of `bytes` bytes: is a tree of all ranks faster than the chain of nodes? The same answer on all ranks.
bool TreeIsFaster(const Fabric& fabric, int64_t bytes);

}  // namespace smddp
