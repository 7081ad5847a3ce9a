// A thread on which XLA continues after a collective, because the engine thread must not compute.
#pragma once

#include <functional>

namespace smddp::ops::xla_calls {

// Queues `work`; items run in order. The thread lives as long as the process. Threads: any.
void Continue(std::function<void()> work);

}  // namespace smddp::ops::xla_calls
