// When the stages of one fused allreduce ran, over all of its chunks. Recorded on request only.
#pragma once

#include <cstdint>

#include "core/clock.h"

namespace smddp {

struct StageTimes {
  enum Stage : int { kNodeReduceScatter = 0, kRailAllreduce = 1, kNodeAllgather = 2, kStages = 3 };
  static const char* NameOf(int stage) {
    constexpr const char* kNames[] = {"NODE_REDUCE_SCATTER", "RAIL_ALLREDUCE", "NODE_ALLGATHER"};
    return kNames[stage];
  }

  // CLOCK_MONOTONIC; 0: the stage has not run.
  int64_t first_ns[kStages] = {}, last_ns[kStages] = {};

  void Mark(Stage stage) {
    last_ns[stage] = NowNs();
    if (first_ns[stage] == 0) first_ns[stage] = last_ns[stage];
  }
};

}  // namespace smddp
