// From tensors that arrive one by one to complete buckets: a bucket is launched as soon as its last tensor has
// arrived, without a message to any other rank.
//
// Threads: the engine's, except for buckets_done() and times().
#pragma once

#include <atomic>
#include <cstdint>

#include "runtime/control/component.h"
#include "runtime/control/zero_memory.h"
#include "runtime/planned/bucket_launcher.h"
#include "runtime/planned/step_times.h"
#include "runtime/plans/plan.h"

namespace smddp {

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
  std::vector<Plan::KeptArrival> TakeKept(Plan* plan);

  // Tensors that have arrived and whose reduction has not begun; and those whose callbacks have not been called.
  int64_t waiting() const { return waiting_; }
  int64_t unfinished() const { return unfinished_; }
  int64_t zeros_in_flight() const { return zeros_in_flight_; }  // of those, the zeros
  int64_t buckets_done() const { return buckets_done_; }        // any thread
  const StepTimes& times() const { return times_; }             // any thread

 private:
  void Place(Plan* plan, Arrival arrival);
  void Put(Plan* plan, Arrival arrival, int64_t since_ns);
  void TryLaunch(Plan* plan, PlannedBucket* bucket);
  void Finish(Plan* plan, PlannedBucket* bucket, const std::vector<Arrival>& arrivals, const Status& status);
  void Answer(Plan* plan, const std::vector<Arrival>& arrivals, const Status& status);

  ControlBus& bus_;
  BucketLauncher& launcher_;
  ZeroMemory& zeros_;
  int64_t waiting_ = 0, unfinished_ = 0, zeros_in_flight_ = 0;
  std::atomic<int64_t> buckets_done_{0};
  StepTimes times_;
};

}  // namespace smddp
