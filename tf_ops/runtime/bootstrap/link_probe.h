// Measures the link to the next node, once, when the session starts. It takes a few milliseconds on a fast link and
// about a tenth of a second on a slow one.
#pragma once

#include "collectives/rail/selector.h"
#include "runtime/bootstrap/exchange.h"
#include "topology/topology.h"
#include "transport/transport.h"

namespace smddp {

// Every rail passes messages around its nodes, all rails at once, so that a rail is measured with its share of the
// link. Returns the worst values of all ranks, the same on all. Collective: every rank returns OK, or every rank
// returns an error.
Result<LinkSpeed> MeasureLink(const Topology& topology, Transport& far, const Exchange& exchange,
                              const Deadline& deadline);

}  // namespace smddp
