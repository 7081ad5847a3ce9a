// Runs algorithms that are defined by a list of rounds (patterns/rounds.h).
#pragma once

#include <functional>
#include <string>

#include "collectives/patterns/rounds.h"
#include "collectives/rail/algorithm.h"

namespace smddp {

// into = first combined with second; `into` is one of them. Returns what is left to do, null when that is nothing.
using Combine = std::function<TaskPtr(void* into, const void* first, const void* second, int64_t elements)>;

// Executes the rounds on the call's data; `name` is for messages. All messages have the same tag: between two members
// they are matched in order. Rounds that add use `combine`.
TaskPtr RunRounds(std::string name, const Group& group, Transport& transport, const RailCall& call, Rounds rounds,
                  Combine combine);

}  // namespace smddp
