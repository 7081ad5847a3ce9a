// From tensors that arrive one by one to complete buckets: a bucket is launched as soon as its last tensor has
// arrived, without a message to any other rank.
//
// Threads: the engine's, except for buckets_done() and times().
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

#include "runtime/control/component.h"
#include "runtime/control/zero_memory.h"
#include "runtime/plans/bucket_launcher.h"
#include "runtime/plans/plan.h"

namespace smddp {

// How long training steps reduced gradients, and for how long of that the program had nothing else to do.
//
// Threads: Arrived and Ended the engine's, the counters any.
class StepTimes {
 public:
  // True: it is the first gradient of its step.
  bool Arrived(int64_t now_ns) {
    if (!under_way_) first_ns_ = now_ns;
    under_way_ = true;
    last_ns_ = now_ns;
    return !std::exchange(in_step_, true);
  }
  // No gradient is under way any more. `complete`: the step has all its gradients, so the program waits for them since
  // the last one arrived; otherwise it is computing the next one. Returns whether a step ended.
  bool Ended(bool complete, int64_t now_ns) {
    if (!std::exchange(under_way_, false)) return false;
    reducing_ns_.fetch_add(now_ns - first_ns_, std::memory_order_relaxed);
    if (!complete) return false;
    in_step_ = false;
    exposed_ns_.fetch_add(now_ns - last_ns_, std::memory_order_relaxed);
    steps_.fetch_add(1, std::memory_order_relaxed);
    return true;
  }

  int64_t steps() const { return steps_.load(std::memory_order_relaxed); }
  int64_t reducing_ns() const { return reducing_ns_.load(std::memory_order_relaxed); }
  int64_t exposed_ns() const { return exposed_ns_.load(std::memory_order_relaxed); }

 private:
  bool under_way_ = false, in_step_ = false;
  int64_t first_ns_ = 0, last_ns_ = 0;
  std::atomic<int64_t> steps_{0}, reducing_ns_{0}, exposed_ns_{0};
};

// A tensor that arrived while its plan may be about to be forgotten (plan_retirement.h).
struct KeptArrival {
  PlannedTensor where;
  TensorRef tensor;
  DoneCallback done;
};

class BucketMatcher {
 public:
  // All outlive it.
  BucketMatcher(ControlBus& bus, BucketLauncher& launcher, ZeroMemory& zeros)
      : bus_(bus), launcher_(launcher), zeros_(zeros) {}

  // A tensor is ready. An error: it does not match the plan, or two runs overlap. Then it is not known which tensors
  // belong together, and the bucket can never complete on any rank. `plan` null: this process does not know it.
  Status Arrive(Plan* plan, const PlannedTensor& where, const TensorRef& tensor, DoneCallback done);
  // Contributes zeros for tensor `index` in its step `step`, counted from 0. Without memory for them the session fails.
  void PlaceZeros(Plan* plan, int index, int64_t step);
  // Rank 0's order has arrived: tensors that arrived before it are put into their buckets.
  void PlaceEarly(Plan* plan);
  // Something that buckets of the plan waited for has arrived: the ranks' verdict, or an agreement about GPUs.
  void LaunchComplete(Plan* plan);
  // Answers all callers that wait for the plan, and drops their tensors.
  void FailWaiting(Plan* plan, const Status& why);
  // From now on the tensors that arrive for the plan are kept until TakeKept; of one plan at a time.
  void Keep(const Plan* plan) { kept_plan_ = plan; }
  bool keeps(const Plan* plan) const { return kept_plan_ == plan; }
  std::vector<KeptArrival> TakeKept();

  // Tensors that have arrived and whose reduction has not begun; and those whose callbacks have not been called.
  int64_t waiting() const { return waiting_; }
  int64_t unfinished() const { return unfinished_; }
  int64_t zeros_in_flight() const { return zeros_in_flight_; }  // of those, the zeros
  // Have all tensors been reduced that this rank's program has submitted?
  bool drained() const { return unfinished_ == zeros_in_flight_; }
  int64_t buckets_done() const { return buckets_done_; }  // any thread
  const StepTimes& times() const { return times_; }       // any thread

 private:
  void Place(Plan* plan, Arrival arrival);
  void TryLaunch(Plan* plan, Placed placed);
  void TryLaunch(Plan* plan, PlannedBucket* bucket);
  void Finish(Plan* plan, PlannedBucket* bucket, const std::vector<Arrival>& arrivals, const Status& status);
  void RecordStep(TraceWhat what, const Plan& plan, int64_t now_ns);
  void Answer(Plan* plan, const std::vector<Arrival>& arrivals, const Status& status);

  ControlBus& bus_;
  BucketLauncher& launcher_;
  ZeroMemory& zeros_;
  const Plan* kept_plan_ = nullptr;
  std::vector<KeptArrival> kept_;
  int64_t waiting_ = 0, unfinished_ = 0, zeros_in_flight_ = 0;
  std::atomic<int64_t> buckets_done_{0};
  StepTimes times_;
};

}  // namespace smddp
