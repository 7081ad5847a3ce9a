// The stages of one chunk inside the node, over shared memory. Shared data are copied once: contributions are packed
// directly into a slot and summed from there, and sums are unpacked from where they were computed. Where the node's
// ranks map one another's tensors (ops/allocator), nothing is packed: contributions are summed from where
// they lie, and sums are unpacked into the output that the others then copy.
//
//   Contribute  packs the slices that others sum into a slot and notifies their reducers; my own slice is not copied
//   Sum         when all contributions to my slice have arrived: sums them in the order of the local ranks. Of a gather
//               (collectives/node/parts.h) there is only my own
//   Publish     publishes the sum to the node and unpacks it into my own output
//   Collect     unpacks the other reducers' sums as they arrive
//   Await       waits until the others have read what stayed in my tensors
//
// Collect runs in parallel with Sum and Publish, so that a published sum is read as soon as it is available.
// NodeChannel::Evacuate guarantees that slots become free whatever the ranks are doing (docs/decisions/0002).
#pragma once

#include <memory>

#include "collectives/node/chunk.h"
#include "collectives/task.h"

namespace smddp {

TaskPtr PublishContribution(std::shared_ptr<Chunk> chunk);
TaskPtr SumMySlice(std::shared_ptr<Chunk> chunk);
TaskPtr PublishSum(std::shared_ptr<Chunk> chunk);
TaskPtr CollectSums(std::shared_ptr<Chunk> chunk);
// `slot`: a member of the chunk. Null where it is not held: nothing to do.
TaskPtr AwaitReaders(std::shared_ptr<Chunk> chunk, Slot* slot);

}  // namespace smddp
