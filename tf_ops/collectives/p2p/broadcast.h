// Binomial tree from the root, piece by piece, so that a rank forwards a piece while the next one arrives. ceil(log2
// P) hops; every rank receives each byte once.
#pragma once

#include <vector>

#include "collectives/fabric.h"
#include "collectives/task.h"

namespace smddp {

// On the root `buffers` are read, elsewhere written. Equal lengths on all ranks.
TaskPtr TreeBroadcast(const Fabric& fabric, uint32_t operation, int root, std::vector<BufferView> buffers);

}  // namespace smddp
