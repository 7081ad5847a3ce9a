// Pairwise exchange: in round k everybody sends to the rank k places to the right and receives from the one k places to
// the left, so nobody is everybody's target at once. P - 1 messages each way, a few at a time; every byte is sent once.
#pragma once

#include <functional>
#include <vector>

#include "collectives/fabric.h"
#include "collectives/task.h"

namespace smddp {

struct AlltoallCall {
  uint32_t operation = 0;
  const void* input = nullptr;
  size_t row_bytes = 0;         // equal on all ranks
  std::vector<int64_t> splits;  // consecutive rows of the input for each rank
  // Called once it is known how many rows come from each rank; returns the memory for them.
  std::function<Result<void*>(const std::vector<int64_t>& received)> allocate;
};

// The ranks tell one another how many rows come, then the rows follow.
TaskPtr PairwiseAlltoall(const Fabric& fabric, AlltoallCall call);

}  // namespace smddp
