// Ring: in step s every rank forwards the block that it received in step s - 1. P - 1 steps; every byte is sent P - 1
// times in total, each time to the right neighbour.
#pragma once

#include <vector>

#include "collectives/fabric.h"
#include "collectives/task.h"

namespace smddp {

// `blocks[r]` is where rank r's bytes lie in the result; my own block is filled in already. Lengths may differ and
// may be 0.
TaskPtr RingAllgather(const Fabric& fabric, uint32_t operation, std::vector<BufferView> blocks);

}  // namespace smddp
