// Pairwise exchange: in round k every rank sends to rank me + k and receives from rank me - k (modulo P), so no two
// ranks send to the same rank at a time. P - 1 messages in each direction, a few at a time; every byte is sent once.
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
  // Called when it is known how many rows each rank sends; returns the memory for them.
  std::function<Result<void*>(const std::vector<int64_t>& received)> allocate;
};

// The ranks exchange the numbers of rows first, then the rows.
TaskPtr PairwiseAlltoall(const Fabric& fabric, AlltoallCall call);

}  // namespace smddp
