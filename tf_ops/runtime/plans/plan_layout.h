// The buckets of a plan and the tensors that have arrived for them.
//
// Threads: the engine's.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "collectives/rounding_errors.h"
#include "fusion/plan.h"
#include "runtime/api/session.h"
#include "runtime/control/reminder.h"

namespace smddp {

struct Arrival {
  TensorRef tensor;
  DoneCallback done;   // null: not arrived
  int index = 0;       // of the tensor in the plan
  int64_t step = 0;    // counted from 0
  bool zeros = false;  // in place of a tensor that this rank does not contribute
};

// One reduction of a bucket.
struct Generation {
  int64_t step = 0;
  std::vector<Arrival> arrivals;  // by slot
  int arrived = 0;
  int64_t since_ns = 0;
  Reminder reminder;
};

struct PlannedBucket {
  Bucket bucket;
  int index = 0;                           // in its layout
  int operation = 0;                       // among the buckets of both layouts, for its tags
  std::deque<Generation> generations;      // of steps for which something has arrived, oldest first
  int64_t next_step = 0;                   // the next step to reduce, whether or not anything of it has arrived
  bool running = false;                    // its last reduction is under way
  std::unique_ptr<RoundingErrors> errors;  // of a bucket that is quantised

  // Have all tensors of the next step arrived?
  bool complete() const {
    return !generations.empty() && generations.front().step == next_step && complete(generations.front());
  }
  bool complete(const Generation& generation) const {
    return generation.arrived == static_cast<int>(bucket.slots.size());
  }
};

class PlanLayout {
 public:
  // `first_operation`: the operation number of the first bucket. `first_step`: the first step that uses the layout.
  PlanLayout(std::vector<Bucket> buckets, size_t tensors, int first_operation, int64_t first_step);

  std::vector<PlannedBucket>& buckets() { return buckets_; }
  const std::vector<PlannedBucket>& buckets() const { return buckets_; }
  // Stores a tensor and returns its bucket, which lives as long as the layout. `*completes`: it was the last tensor
  // missing in its step of the bucket.
  PlannedBucket& Put(Arrival arrival, int64_t now_ns, bool* completes);

 private:
  std::vector<PlannedBucket> buckets_;
  std::vector<std::pair<int, int>> place_of_tensor_;  // bucket, slot
};

}  // namespace smddp
