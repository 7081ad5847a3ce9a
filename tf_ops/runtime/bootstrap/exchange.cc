#include "runtime/bootstrap/exchange.h"

namespace smddp {

Status AllOk(const Status& mine, const Exchange& exchange) {
  SMDDP_ASSIGN_OR_RETURN(const auto errors, exchange(mine.ok() ? "" : mine.message()));
  for (size_t rank = 0; rank < errors.size(); ++rank) {
    if (errors[rank].empty()) continue;
    return Status(Reason::kNoResources, exchange.caller + " failed on rank " +
                                            std::to_string(exchange.global_rank(static_cast<int>(rank))) + ": " +
                                            errors[rank]);
  }
  return Status::Ok();
}

}  // namespace smddp
