// Steps that some rank gave up (runtime/planned/given_up_steps.h).
#pragma once

#include <cstdint>
#include <string>

#include "core/status.h"

namespace smddp {

// A cancelled step is given up after this delay: ops that TensorFlow has started may still provide their tensors.
constexpr int64_t kSettleNs = 200 * 1000000LL;

inline Status GivenUpBy(int rank) {
  return Status(
      Reason::kStepGivenUp,
      "Rank " + std::to_string(rank) +
          " gave up a step: another operation of the step failed there before the gradients were reduced (see that "
          "rank's own error). The step has failed on all ranks; the session continues with the next one.");
}

}  // namespace smddp
