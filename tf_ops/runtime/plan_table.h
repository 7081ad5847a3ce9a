// Planned matching: gradients are known by (plan, index), so a bucket starts the moment its last tensor is ready and
// no rank is asked.
//
// Order. The first reduction of every tensor goes through buckets of the listed order. Rank 0 notes in which order the
// tensors come to it in that first step, and tells everybody once; the second and all later reductions of a tensor go
// through buckets of that order. Which of the two a reduction belongs to is decided by counting the tensor's arrivals,
// on each rank for itself, so ranks may be steps apart. A tensor that comes the second time before rank 0 has spoken
// is held. That ends: what rank 0 waits for belongs to the first step, which needs nothing of the second. The two
// layouts have operation numbers, and so tags, of their own.
//
// Threads: the engine's.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "collectives/algorithm.h"
#include "collectives/fabric.h"
#include "core/env.h"
#include "fusion/plan.h"
#include "runtime/announcement.h"
#include "runtime/plan_layout.h"
#include "runtime/running_task.h"
#include "runtime/session.h"
#include "runtime/trace.h"

namespace smddp {

struct PlanOptions {
  int64_t bucket_bytes = kAutoBytes;
  bool observe_order = true;  // rank 0's counts; false: it tells everybody to keep the listed order
};

class PlanTable {
 public:
  // `tell_others` posts rank 0's order to all other ranks.
  using TellOthers = std::function<void(const PlanOrder&)>;
  PlanTable(const Fabric& fabric, PlanOptions options, TaskRunner run, TellOthers tell_others, Trace& trace)
      : fabric_(fabric), options_(options), run_(std::move(run)), tell_others_(std::move(tell_others)), trace_(trace) {}

  // A plan that the ranks have yet to agree on; its buckets wait. An error when it cannot be numbered.
  Status Add(int id, const PlanSpec& spec);
  // The number that all ranks use for it; before Decide.
  void SetNumber(int id, int number) { plans_.at(id).number = number; }
  // The ranks' verdict on it.
  void Decide(int id, const Status& verdict);
  // Rank 0 has spoken. Not OK: that cannot be the order of any plan here.
  Status Adopt(const PlanOrder& order);
  // A tensor is ready. Not OK: it is not what the plan says, and the bucket can never complete on any rank.
  Status Arrive(int id, int index, const TensorRef& tensor, DoneCallback done);
  void FailAll(const Status& why);

  bool waiting() const { return waiting_tensors_ > 0; }
  // When the oldest tensor that waits came; INT64_MAX when there is none.
  int64_t OldestNs() const;
  int64_t buckets_done() const { return buckets_done_; }  // any thread
  // Buckets of which some tensors have waited longer than `seconds` for the others, each reported once.
  std::vector<std::string> Stalled(int64_t now_ns, double seconds);
  // One that has waited longer than `seconds`, in a sentence; "" when there is none.
  std::string StuckFor(int64_t now_ns, double seconds) const;

 private:
  // Came the second time before the order was known.
  struct Held {
    int index = 0;
    Arrival arrival;
    int64_t since_ns = 0;
  };
  struct Plan {
    PlanSpec spec;
    std::deque<PlanLayout> layouts;         // of the first reduction; of the later ones, if that is another
    std::vector<bool> came;                 // by tensor
    std::vector<int> first_step;            // the tensors in the order of their first arrival
    std::vector<Held> held;                 // in the order of arrival
    int number = -1;                        // on the wire
    bool decided = false, ordered = false;  // has the verdict, the order come?
    bool held_reported = false;
    Status verdict;
  };

  FusionLimits LimitsFor(const PlanSpec& spec) const;
  Status CheckArrival(int id, int index, const TensorRef& tensor) const;
  // Rank 0: tells the order as soon as it is known.
  void TryTellOrder(Plan* plan);
  void Apply(Plan* plan, const std::vector<int>& order);
  void TryStart(Plan* plan, PlannedBucket* bucket);
  void Finish(Plan* plan, PlannedBucket* bucket, std::vector<Arrival> arrivals, const Status& status);
  void FailWaiting(Plan* plan, const Status& why);
  static std::string DescribeMissing(const Plan& plan, const PlannedBucket& bucket, int64_t now_ns);
  static std::string DescribeHeld(const Plan& plan, int64_t now_ns);

  const Fabric& fabric_;
  const PlanOptions options_;
  const TaskRunner run_;
  const TellOthers tell_others_;
  Trace& trace_;
  std::map<int, Plan> plans_;
  int64_t waiting_tensors_ = 0;
  std::atomic<int64_t> buckets_done_{0};
};

}  // namespace smddp
