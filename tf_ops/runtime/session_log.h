// What a session says of itself in the log when it begins.
#pragma once

#include <string>

#include "runtime/session.h"

namespace smddp {

// Rank 0: a warning about variables that nobody reads, and who takes part with what (info). All ranks: where this one
// is (debug). `kernels`: Compute::name.
void LogStart(const Topology& topology, const std::string& kernels, const StartOptions& options);

// "8 ranks on 2 nodes (4+4)"
std::string RanksAndNodes(const Topology& topology);

}  // namespace smddp
