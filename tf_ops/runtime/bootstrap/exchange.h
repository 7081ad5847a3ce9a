// The exchange of texts between ranks while the session starts.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/status.h"

namespace smddp {

struct Exchange {
  // The texts of all ranks, in rank order. Collective.
  std::function<Result<std::vector<std::string>>(const std::string&)> gather;
  std::string caller = "hvd.init()";   // what starts, for messages
  std::vector<int> global_ranks = {};  // of a process set (topology.h); else empty

  Result<std::vector<std::string>> operator()(const std::string& mine) const { return gather(mine); }
  int global_rank(int rank) const { return global_ranks.empty() ? rank : global_ranks[rank]; }
};

// Shares a local result: an error on one rank becomes the same error on all.
inline Status AllOk(const Status& mine, const Exchange& exchange) {
  SMDDP_ASSIGN_OR_RETURN(const auto errors, exchange(mine.ok() ? "" : mine.message()));
  for (size_t rank = 0; rank < errors.size(); ++rank) {
    if (errors[rank].empty()) continue;
    return Status(Reason::kNoResources, exchange.caller, " failed on rank ",
                  exchange.global_rank(static_cast<int>(rank)), ": ", errors[rank]);
  }
  return Status::Ok();
}

}  // namespace smddp
