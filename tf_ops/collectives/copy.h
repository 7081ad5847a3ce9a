// A copy on this rank, as a task: a large one in one go would keep the engine from everything else for seconds, and
// what watches it would take it for dead.
#pragma once

#include "collectives/task.h"
#include "core/buffer.h"

namespace smddp {

// `into.size` bytes from `from`, which both outlive the task. Null when there is nothing to copy.
TaskPtr Copy(BufferView into, const void* from);

}  // namespace smddp
