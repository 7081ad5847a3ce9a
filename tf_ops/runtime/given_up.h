// The error of steps that some rank gave up (runtime/engine_cancel.cc).
#pragma once

#include <string>

#include "core/status.h"

namespace smddp {

inline Status GivenUpBy(int rank) {
  return Status(Code::kAborted, "Rank " + std::to_string(rank) +
                                    " gave up a step: another operation of it failed there (that rank's own error says "
                                    "which) before the step was reduced. It has failed on all ranks; the session goes "
                                    "on with the next one.");
}

}  // namespace smddp
