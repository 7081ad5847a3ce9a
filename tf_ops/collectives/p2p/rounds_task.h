// Carries out a list of rounds (patterns/rounds.h) over a transport.
#pragma once

#include "collectives/algorithm.h"
#include "collectives/patterns/rounds.h"

namespace smddp {

// `name` appears in Describe. All messages bear the same tag: between two members they are matched in order.
TaskPtr RunRounds(const char* name, const Group& group, Transport& transport, const Compute& compute,
                  const RailCall& call, Rounds rounds);

}  // namespace smddp
