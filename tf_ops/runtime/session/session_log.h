// The session's log messages at its start.
#pragma once

#include <string>

#include "core/env/env.h"
#include "runtime/api/session.h"

namespace smddp {

// Rank 0: a warning about a variable without effect, and a summary of ranks and versions (info).
// All ranks: the host of this rank (debug). `kernels`: Compute::name.
void LogStart(const Topology& topology, const Env& env, const std::string& kernels, const StartOptions& options);

// "8 ranks on 2 nodes (4+4)"
std::string RanksAndNodes(const Topology& topology);

}  // namespace smddp
