// The stages of one chunk inside the node, over shared memory. Nothing that is shared is copied twice: contributions
// are packed straight into a slot, summed from there, and sums are unpacked from where they were made.
//
//   Contribute  pack the shards that others sum into a slot, tell their reducers; my own shard is never copied
//   Sum         when everybody's contribution to my shard is there: sum them in the order of the local ranks
//   Publish     show the sum to the node and unpack it into my own output
//   Collect     unpack the other reducers' sums as they come
//
// Collect runs beside Sum and Publish, not after them, so that a published sum is read as soon as it is there. That
// slots always come free, whatever the ranks are in the middle of, is NodeChannel::Evacuate's doing
// (docs/decisions/0002).
#pragma once

#include <memory>

#include "collectives/node/chunk.h"
#include "collectives/task.h"

namespace smddp {

TaskPtr PublishContribution(std::shared_ptr<Chunk> chunk);
TaskPtr SumMyShard(std::shared_ptr<Chunk> chunk);
TaskPtr PublishSum(std::shared_ptr<Chunk> chunk);
TaskPtr CollectSums(std::shared_ptr<Chunk> chunk);

}  // namespace smddp
