// What a session says of itself in the log when it begins.
#pragma once

#include <string>

#include "core/env/env.h"
#include "runtime/api/session.h"

namespace smddp {

// Rank 0: warnings about variables that nobody reads or that have no effect, and who takes part with what (info). All
// ranks: where this one is (debug). `kernels`: Compute::name.
void LogStart(const Topology& topology, const Env& env, const std::string& kernels, const StartOptions& options);

// "8 ranks on 2 nodes (4+4)"
std::string RanksAndNodes(const Topology& topology);

}  // namespace smddp
