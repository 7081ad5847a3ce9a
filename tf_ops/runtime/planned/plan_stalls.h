// What waits in the plans of this rank, and for how long.
//
// Threads: the engine's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/plans/plan_table.h"

namespace smddp {

class PlanStalls {
 public:
  // Both outlive it.
  PlanStalls(PlanTable& plans, const Topology& topology) : plans_(plans), topology_(topology) {}

  // When the oldest tensor that waits came; INT64_MAX without any.
  int64_t OldestNs() const;
  // Some gradients of a step have come and others not: the program still computes.
  bool InPart() const;
  // Will Take have something to say?
  bool IsDue(int64_t now_ns, double seconds) const;
  // A sentence for each bucket of which some tensors have waited longer than `seconds` for the others, when its
  // Reminder is due.
  std::vector<std::string> Take(int64_t now_ns, double seconds) const;
  // One that has waited longer than `seconds`, in a sentence; "" without any.
  std::string StuckFor(int64_t now_ns, double seconds) const;

 private:
  // Calls visit(since_ns, &reminder, describe) for each bucket, and for what came early, of which something waits.
  template <class Visit>
  void ForEachWait(int64_t now_ns, Visit visit) const;
  std::string DescribeMissing(const Plan& plan, const PlannedBucket& bucket, int64_t now_ns) const;
  std::string DescribeEarly(const Plan& plan, int64_t now_ns) const;

  PlanTable& plans_;
  const Topology& topology_;
};

}  // namespace smddp
