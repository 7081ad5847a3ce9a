// Planned matching: gradients are known by (plan, index), so a bucket starts the moment its last tensor is ready and
// no rank is asked. A tensor that comes again before its bucket is through belongs to the bucket's next generation.
//
// Threads: the engine's.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "collectives/algorithm.h"
#include "collectives/fabric.h"
#include "fusion/plan.h"
#include "runtime/running_task.h"
#include "runtime/session.h"
#include "runtime/trace.h"

namespace smddp {

class PlanTable {
 public:
  PlanTable(const Fabric& fabric, FusionLimits limits, TaskRunner run, Trace& trace)
      : fabric_(fabric), limits_(limits), run_(std::move(run)), trace_(trace) {}

  // A plan that the ranks have yet to agree on; its buckets wait. An error when it cannot be numbered.
  Status Add(int id, const PlanSpec& spec);
  // The number that all ranks use for it; before Decide.
  void SetNumber(int id, int number) { plans_.at(id).number = number; }
  // The ranks' verdict on it.
  void Decide(int id, const Status& verdict);
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
  struct Arrival {
    TensorRef tensor;
    DoneCallback done;
  };
  struct Generation {
    std::vector<Arrival> arrivals;  // by slot
    int arrived = 0;
    int64_t since_ns = 0;
    bool reported = false;
  };
  struct BucketState {
    Bucket bucket;
    std::deque<Generation> generations;
    bool running = false;
  };
  struct Plan {
    PlanSpec spec;
    std::vector<BucketState> buckets;
    std::vector<std::pair<int, int>> place_of_tensor;  // bucket, slot
    int number = 0;                                    // on the wire
    bool decided = false;
    Status verdict;
  };

  Generation& GenerationFor(BucketState* state, int slot);
  void TryStart(int id, int bucket);
  void Finish(int id, int bucket, std::vector<Arrival> arrivals, const Status& status);
  void FailWaiting(Plan* plan, const Status& why);
  std::string DescribeMissing(const Plan& plan, const BucketState& state, const Generation& generation,
                              int64_t now_ns) const;

  const Fabric& fabric_;
  const FusionLimits limits_;
  const TaskRunner run_;
  Trace& trace_;
  std::map<int, Plan> plans_;
  int64_t waiting_tensors_ = 0;
  std::atomic<int64_t> buckets_done_{0};
};

}  // namespace smddp
