// The waiting tensors in the plans of this rank, and how long they have waited.
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

  // When the oldest waiting tensor arrived; INT64_MAX when there is none.
  int64_t OldestNs() const;
  // Some gradients of a step have arrived and others have not: the program still computes.
  bool InPart() const;
  // Would Take return anything?
  bool IsDue(int64_t now_ns, double seconds) const;
  // A sentence for each bucket of which some tensors have waited longer than `seconds` for the others, when its
  // Reminder is due.
  std::vector<std::string> Take(int64_t now_ns, double seconds) const;
  // A sentence about a bucket that has waited longer than `seconds`; "" when there is none.
  std::string StuckFor(int64_t now_ns, double seconds) const;

 private:
  // Calls visit(since_ns, &reminder, describe) for each bucket with waiting tensors, and for early arrivals.
  template <class Visit>
  void ForEachWait(int64_t now_ns, Visit visit) const;
  std::string DescribeMissing(const Plan& plan, const PlannedBucket& bucket, int64_t now_ns) const;
  std::string DescribeEarly(const Plan& plan, int64_t now_ns) const;

  PlanTable& plans_;
  const Topology& topology_;
};

}  // namespace smddp
