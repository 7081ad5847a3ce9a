// How the ranks find one another: the topology, the settings that must agree, the shared memory.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/env/env.h"
#include "runtime/bootstrap/exchange.h"
#include "runtime/bootstrap/fabric_parts.h"
#include "transport/shm/tensor_memory.h"
#include "transport/transport.h"

namespace smddp {

// The identity of the memory domain this process lives in: host, boot and /dev/shm, or SMDDP_HOST_ID.
std::string HostId(const Env& env);

// The algorithm that SMDDP_RAIL_ALGORITHM names: null for auto; an error that lists the names for any other text.
Result<const AllreduceAlgorithm*> RailAlgorithmNamed(const std::string& name);

// What must agree, with this rank's values: {"SMDDP_CHUNK_BYTES", "262144"}.
using Facts = std::vector<std::pair<std::string, std::string>>;

// Collective: every rank returns OK, or every rank returns an error. With `known_rail` the link is not measured;
// null: measured. `versions`: of other software, which must be the same on all ranks. `tensors`: of this rank's
// framework, kept in use as long as the process lives.
Result<std::unique_ptr<FabricParts>> Bootstrap(int rank, const Env& env, const Exchange& exchange,
                                               std::unique_ptr<Transport> far, const Deadline& deadline,
                                               const RailChoice* known_rail = nullptr, const Facts& versions = {},
                                               const TensorMemory& tensors = {});

}  // namespace smddp
