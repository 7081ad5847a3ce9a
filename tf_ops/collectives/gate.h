// Holds back the chunks of a fused allreduce until their data are available, and is notified when their sums are
// complete.
#pragma once

#include <utility>

#include "collectives/task.h"
#include "core/buffer.h"

namespace smddp {

// Threads: the engine's.
class ChunkGate {
 public:
  virtual ~ChunkGate() = default;
  // May elements `range` of the packed data be read and written now?
  virtual Result<bool> Ready(Range range) = 0;
  // The sums of `range` are complete.
  virtual Status Done(Range range) = 0;
};

// Runs `work` on `range` between Ready and Done. The gate outlives it.
inline TaskPtr Gated(ChunkGate& gate, Range range, TaskFactory work) {
  const auto end = [&gate, range]() -> Result<bool> {
    SMDDP_RETURN_IF_ERROR(gate.Done(range));
    return true;
  };
  return Sequence({
      [&gate, range] { return Until("waiting for the GPU", [&gate, range] { return gate.Ready(range); }); },
      std::move(work),
      [end] { return Until("handing sums over", end); },
  });
}

}  // namespace smddp
