// A thread on which XLA goes on after a collective, because the engine's must not compute.
#pragma once

#include <functional>

namespace smddp::ops::xla_calls {

// Runs `work` soon, after what was handed over before it. The thread lives as long as the process. Threads: any.
void Continue(std::function<void()> work);

}  // namespace smddp::ops::xla_calls
