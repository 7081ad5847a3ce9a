// Every rank's bytes to all ranks, each byte once over a node's link. The bytes of a node's ranks, one after another,
// are its node block. Chunk by chunk, for all node blocks at once:
//
//   1. every rank publishes its own bytes to its node, where the others copy them into their results
//   2. each rail passes its share of every node block round a ring of the nodes
//   3. the rail's member publishes what arrives to its node
//
// A broadcast is the case where one rank has everything: its chunks pass the nodes as a chain. Lengths are known, so
// nothing but the bytes is sent. What a rank waits for from another node is received into the result or private
// memory, never into a slot, so docs/decisions/0002 holds.
#pragma once

#include <vector>

#include "collectives/fabric.h"
#include "collectives/task.h"

namespace smddp {

// `blocks[r]` is where rank r's bytes lie on this rank, in any number of pieces; my own are filled in already. Of
// equal lengths in total on all ranks; they may be 0. `fabric` outlives the task.
TaskPtr HierarchicalAllgather(const Fabric& fabric, uint32_t operation,
                              const std::vector<std::vector<BufferView>>& blocks);

// Of `bytes` bytes: is a tree of all ranks faster than the chain of nodes? The same answer on all ranks.
bool TreeIsFaster(const Fabric& fabric, int64_t bytes);

}  // namespace smddp
