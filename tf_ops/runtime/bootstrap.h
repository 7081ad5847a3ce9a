// How the ranks find one another: who is where, whether they agree on what must agree, whose memory is whose.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/env.h"
#include "runtime/fabric_parts.h"
#include "transport/transport.h"

namespace smddp {

// Every rank's text, in rank order. Collective.
using Exchange = std::function<Result<std::vector<std::string>>(const std::string&)>;

// The identity of the memory domain this process lives in: host, boot and /dev/shm, or SMDDP_HOST_ID.
std::string HostId(const Env& env);

// Collective: every rank returns OK, or every rank returns an error.
Result<std::unique_ptr<FabricParts>> Bootstrap(int rank, const Env& env, const Exchange& exchange,
                                               std::unique_ptr<Transport> far);

}  // namespace smddp
