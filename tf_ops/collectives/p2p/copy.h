// A local copy as a task. A large memcpy in one step would block the engine for seconds, and the watchdog would
// report it as dead.
#pragma once

#include "collectives/task.h"
#include "core/buffer.h"

namespace smddp {

// Copies `into.size` bytes from `from`; both outlive the task. Null when there is nothing to copy.
TaskPtr Copy(BufferView into, const void* from);

}  // namespace smddp
