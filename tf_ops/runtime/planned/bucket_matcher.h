// From tensors that arrive one by one to complete buckets: a bucket is launched the moment its last tensor is there,
// and no other rank is asked.
//
// Threads: the engine's, but for buckets_done().
#pragma once

#include <atomic>
#include <cstdint>

#include "runtime/control/trace.h"
#include "runtime/planned/bucket_launcher.h"
#include "runtime/planned/zero_tensors.h"
#include "runtime/plans/plan.h"

namespace smddp {

class BucketMatcher {
 public:
  // Both outlive it.
  BucketMatcher(Trace& trace, BucketLauncher& launcher) : trace_(trace), launcher_(launcher) {}

  // A tensor is ready. Not OK: it is not what the plan says, or two runs overlap: what belongs together is not known,
  // and the bucket can never complete on any rank. `plan` null: this process does not know it.
  Status Arrive(Plan* plan, const PlannedTensor& where, const TensorRef& tensor, DoneCallback done);
  // Puts zeros in the place of tensor `index` in its step `step`, counted from 0.
  void PlaceZeros(Plan* plan, int index, int64_t step, ZeroTensors& zeros);
  // Rank 0 has told the order: what came before it goes into its buckets.
  void PlaceEarly(Plan* plan);
  // Something that buckets of the plan waited for has come: the ranks' verdict, an agreement about GPUs.
  void LaunchComplete(Plan* plan);
  // Answers all that wait for the plan, and keeps nothing any more.
  void FailWaiting(Plan* plan, const Status& why);
  std::vector<Plan::KeptArrival> TakeKept(Plan* plan);

  // Tensors that have come and whose reduction has not begun; and those whose callbacks have not been called.
  int64_t waiting() const { return waiting_; }
  int64_t unfinished() const { return unfinished_; }
  int64_t buckets_done() const { return buckets_done_; }  // any thread

 private:
  void Place(Plan* plan, Arrival arrival);
  void Put(Plan* plan, Arrival arrival, int64_t since_ns);
  void TryLaunch(Plan* plan, PlannedBucket* bucket);
  void Finish(Plan* plan, PlannedBucket* bucket, const std::vector<Arrival>& arrivals, const Status& status);
  void Answer(Plan* plan, const std::vector<Arrival>& arrivals, const Status& status);

  Trace& trace_;
  BucketLauncher& launcher_;
  int64_t waiting_ = 0, unfinished_ = 0;
  std::atomic<int64_t> buckets_done_{0};
};

}  // namespace smddp
