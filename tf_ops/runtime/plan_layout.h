// The buckets of a plan and what has come for them.
//
// Threads: the engine's.
#pragma once

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "fusion/plan.h"
#include "runtime/reminder.h"
#include "runtime/session.h"

namespace smddp {

struct Arrival {
  TensorRef tensor;
  DoneCallback done;  // null: it has not come
};

// One reduction of a bucket.
struct Generation {
  std::vector<Arrival> arrivals;  // by slot
  int arrived = 0;
  int64_t since_ns = 0;
  Reminder reminder;
};

struct PlannedBucket {
  Bucket bucket;
  int index = 0;                       // in its layout
  int operation = 0;                   // among all buckets of the plan, for its tags
  std::deque<Generation> generations;  // oldest first; a tensor that comes again belongs to the next one
  int64_t finished = 0;                // reductions

  bool complete() const {
    return !generations.empty() && generations.front().arrived == static_cast<int>(bucket.slots.size());
  }
};

class PlanLayout {
 public:
  // `first_operation`: the number of the first bucket's operation.
  PlanLayout(std::vector<Bucket> buckets, size_t tensors, int first_operation);

  std::vector<PlannedBucket>& buckets() { return buckets_; }
  const std::vector<PlannedBucket>& buckets() const { return buckets_; }
  // Puts a tensor into its place and returns its bucket, which lives as long as the layout.
  PlannedBucket& Put(int tensor, Arrival arrival);
  // The bucket of that operation number, or null.
  PlannedBucket* WithOperation(int operation);

 private:
  const int first_operation_;
  std::vector<PlannedBucket> buckets_;
  std::vector<std::pair<int, int>> place_of_tensor_;  // bucket, slot
};

}  // namespace smddp
