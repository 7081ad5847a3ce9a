// A plan: one list of gradients that all ranks reduce together, step after step. This file: its state on this rank,
// its buckets, and the tensors that have arrived.
//
// Steps. The n-th reduction of every tensor belongs to step n. Each rank counts for itself, so ranks may be at
// different steps (plan_steps.h). The first step is reduced in buckets of the listed order. Rank 0 records in which
// order its tensors become ready in that step and sends the order to all ranks; from the second step on buckets
// follow it (planned_reductions.h).
//
// Operation numbers, and so tags: the buckets of both layouts share one numbering. A number is reused in each step,
// but by one reduction at a time on each rank.
//
// Threads: the engine's.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collectives/node/chunk.h"
#include "core/status.h"
#include "fusion/plan.h"
#include "runtime/api/session.h"
#include "runtime/control/reminder.h"
#include "runtime/plans/plan_steps.h"

namespace smddp {

struct Arrival {
  TensorRef tensor;
  DoneCallback done;   // null: not arrived
  int index = 0;       // of the tensor in the plan
  int64_t step = 0;    // counted from 0
  bool zeros = false;  // in place of a tensor that this rank does not contribute
  int64_t since_ns = 0;
};

// One reduction of a bucket.
struct Generation {
  int64_t step = 0;
  std::vector<Arrival> arrivals;  // by slot
  int arrived = 0;
  int64_t since_ns = 0;
  mutable Reminder reminder;  // the stall watch's
};

class PlannedBucket {
 public:
  // `index`: in its layout. `operation`: among the buckets of both layouts, for its tags.
  PlannedBucket(Bucket bucket, int index, int operation, int64_t first_step);

  const Bucket& bucket() const { return bucket_; }
  int index() const { return index_; }
  int operation() const { return operation_; }
  RoundingErrors* errors() const { return errors_.get(); }  // null: it is not quantised
  // The oldest reduction that has not begun and of which some tensors have arrived; null: none.
  const Generation* waiting() const { return generations_.empty() ? nullptr : &generations_.front(); }
  // Have all tensors of the next step arrived?
  bool complete() const { return waiting() != nullptr && waiting()->step == next_step_ && IsComplete(*waiting()); }
  // Is its last reduction under way?
  bool running() const { return running_; }

  // True: it was the last tensor missing in its step.
  bool Put(int slot, Arrival arrival);
  // The next step, which is complete, is reduced from now on until End.
  Generation Begin();
  void End() { running_ = false; }
  // Moves the tensors that wait to `into`.
  void TakeWaiting(std::vector<Arrival>* into);

 private:
  bool IsComplete(const Generation& generation) const {
    return generation.arrived == static_cast<int>(bucket_.slots.size());
  }

  Bucket bucket_;
  int index_, operation_;
  std::unique_ptr<RoundingErrors> errors_;
  std::deque<Generation> generations_;  // of steps for which something has arrived, oldest first
  int64_t next_step_;                   // the next step to reduce, whether or not anything of it has arrived
  bool running_ = false;
};

// A tensor's bucket, which lives as long as the plan. `completes`: it was the last one missing in its step there.
struct Placed {
  PlannedBucket* bucket = nullptr;
  bool completes = false;
};

class Plan;

// What waits in a plan: a bucket, for tensors or for the ranks' agreement; null: tensors, for rank 0's order.
struct PlanWait {
  const Plan* plan;
  const PlannedBucket* bucket;
  int64_t since_ns;
  Reminder* reminder;  // the stall watch's
};

class PlanLayout {
 public:
  // `first_operation`: the operation number of the first bucket. `first_step`: the first step that uses the layout.
  PlanLayout(std::vector<Bucket> buckets, size_t tensors, int first_operation, int64_t first_step);

  std::vector<PlannedBucket>& buckets() { return buckets_; }
  const std::vector<PlannedBucket>& buckets() const { return buckets_; }
  Placed Put(Arrival arrival);

 private:
  std::vector<PlannedBucket> buckets_;
  std::vector<std::pair<int, int>> place_of_tensor_;  // bucket, slot
};

// What the ranks have agreed on about a plan.
class PlanAgreement {
 public:
  // `number`: on the wire. `devices_possible`: tensors of it may lie on GPUs, on some rank.
  void Adopt(int number, bool devices_possible) {
    number_ = number;
    devices_possible_ = devices_possible;
  }
  // The ranks' verdict; an error: why the plan is refused.
  void Decide(const Status& verdict) {
    decided_ = true;
    verdict_ = verdict;
  }
  int number() const { return number_; }  // -1: none yet
  bool devices_possible() const { return devices_possible_; }
  bool reached() const { return decided_ && verdict_.ok(); }
  bool refused() const { return !verdict_.ok(); }
  const Status& verdict() const { return verdict_; }

  // The run in which this rank has asked for the agreement. A plan that was refused may be asked for in a later one.
  void AskIn(uint64_t run) { asked_in_ = run; }
  bool MayAskIn(uint64_t run) const { return refused() && run != 0 && run != asked_in_; }

 private:
  int number_ = -1;
  bool devices_possible_ = false, decided_ = false;
  Status verdict_;
  uint64_t asked_in_ = 0;
};

class Plan {
 public:
  // `name`: by which the ranks match.
  Plan(std::string name, const PlanSpec& spec, int64_t bucket_bytes);

  const std::string& name() const { return name_; }
  const PlanSpec& spec() const { return spec_; }
  PlanAgreement& agreed() { return agreed_; }
  const PlanAgreement& agreed() const { return agreed_; }
  PlanSteps& steps() { return steps_; }
  const PlanSteps& steps() const { return steps_; }

  // --- Tensors
  // A tensor of a step that `steps` has counted, or zeros for it. No bucket: it waits for rank 0's order.
  Placed Put(Arrival arrival);
  // Rank 0's order has arrived: the next of the tensors that waited for it. No bucket: there are no more.
  Placed PutEarly();
  // Their reduction has ended; the caller answers them.
  void Finish(const std::vector<Arrival>& arrivals);
  // Removes the tensors whose reductions have not begun.
  std::vector<Arrival> TakeWaiting();
  // Is it agreed on, and is nothing of it under way on this rank, not even zeros that it owes?
  bool IsIdle() const { return agreed_.reached() && open_ == 0 && steps_.settled(); }
  // When a tensor arrived, or Touch was called.
  int64_t last_use_ns() const { return last_use_ns_; }
  void Touch(int64_t now_ns) { last_use_ns_ = now_ns; }

  // --- The order of the tensors from the second step on
  bool ordered() const { return ordered_; }  // has rank 0's order arrived?
  // Nothing: not all tensors have arrived for the first time. Empty: the buckets stay as listed.
  std::optional<std::vector<int>> ObservedOrder() const;
  // `order` is empty or as above. False: this cannot be an order of the plan, or it has one; nothing has changed.
  bool SetOrder(const std::vector<int>& order);

  // --- Buckets
  // Can a tensor be in another bucket in later steps? The same on every rank, whether or not the order has arrived.
  bool places_vary() const { return listed_.buckets().size() > 1; }
  bool reordered() const { return observed_.has_value(); }
  const std::vector<PlannedBucket>& buckets() const { return observed_ ? observed_->buckets() : listed_.buckets(); }
  // In both layouts.
  template <class Visit>
  void ForEachBucket(Visit visit) {
    for (PlannedBucket& bucket : listed_.buckets()) visit(&bucket);
    if (!observed_) return;
    for (PlannedBucket& bucket : observed_->buckets()) visit(&bucket);
  }
  // Appends what waits in it.
  void AddWaits(std::vector<PlanWait>* waits) const;

 private:
  // Of `step`, counted from 0; null: not known yet.
  PlanLayout* LayoutOf(int64_t step) {
    if (step > 0 && !ordered_) return nullptr;
    return step > 0 && observed_ ? &*observed_ : &listed_;
  }

  std::string name_;
  PlanSpec spec_;
  int64_t bucket_bytes_;
  PlanAgreement agreed_;
  PlanSteps steps_;
  PlanLayout listed_;
  std::optional<PlanLayout> observed_;  // of the second and later steps; none: `listed_` is still used
  bool ordered_ = false;
  std::vector<int> first_step_;  // the tensors in the order of their first arrival
  // Tensors of the second or a later step that arrived before rank 0's order, in the order of arrival.
  std::deque<Arrival> early_;
  mutable Reminder early_reminder_;
  int64_t open_ = 0;  // arrivals without an answer, including zeros
  int64_t last_use_ns_ = 0;
};

}  // namespace smddp
