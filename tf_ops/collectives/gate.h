// Holds back the chunks of a fused allreduce until their data are there, and hears of those whose sums are.
#pragma once

#include "collectives/task.h"
#include "core/buffer.h"

namespace smddp {

// Threads: the engine's.
class ChunkGate {
 public:
  virtual ~ChunkGate() = default;
  // May elements `range` of the packed data be read and written now?
  virtual Result<bool> Ready(Range range) = 0;
  // Their sums are there.
  virtual Status Done(Range range) = 0;
};

// `work` on `range`, from Ready to Done. The gate outlives it.
TaskPtr Gated(ChunkGate& gate, Range range, TaskFactory work);

}  // namespace smddp
