// A plan: one list of gradients that all ranks reduce together, step after step. What is known of it on this rank, and
// what has come for it.
//
// Steps. The n-th reduction of every tensor belongs to step n. Each rank counts for itself, so ranks may be steps apart
// (plan_steps.h). The first step is reduced in buckets of the listed order. Rank 0 notes in which order the tensors
// come to it in that step and tells all ranks; from the second step on buckets follow that order (layout_schedule.h).
//
// Operation numbers, and so tags: the buckets of both layouts are numbered in one row. A number is used again in each
// step, but by one reduction at a time on each rank.
//
// Threads: the engine's.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/status.h"
#include "fusion/plan.h"
#include "runtime/api/session.h"
#include "runtime/plans/plan_layout.h"
#include "runtime/plans/plan_steps.h"

namespace smddp {

struct Plan {
  // A tensor of the second step or a later one that came before rank 0 has told the order.
  struct EarlyArrival {
    Arrival arrival;
    int64_t since_ns = 0;
  };
  // A tensor that came while the plan may be about to be forgotten (plan_retirement.h).
  struct KeptArrival {
    PlannedTensor where;
    TensorRef tensor;
    DoneCallback done;
  };

  Plan(std::string plan_name, const PlanSpec& plan_spec, FusionLimits limits)
      : name(std::move(plan_name)),
        spec(plan_spec),
        steps(spec.tensors.size()),
        listed(PlanBuckets(spec, limits), spec.tensors.size(), /*first_operation=*/0, /*first_step=*/0) {}

  // Where the tensors of `step`, counted from 0, are put; null: not known yet.
  PlanLayout* LayoutOf(int64_t step) {
    if (step == 0) return &listed;
    if (!ordered) return nullptr;
    return observed ? &*observed : &listed;
  }
  bool refused() const { return !verdict.ok(); }
  template <class Visit>
  void ForEachBucket(Visit visit) {
    for (PlannedBucket& bucket : listed.buckets()) visit(&bucket);
    if (!observed) return;
    for (PlannedBucket& bucket : observed->buckets()) visit(&bucket);
  }
  template <class Visit>
  void ForEachBucket(Visit visit) const {
    for (const PlannedBucket& bucket : listed.buckets()) visit(bucket);
    if (!observed) return;
    for (const PlannedBucket& bucket : observed->buckets()) visit(bucket);
  }

  std::string name;  // the ranks match by it
  PlanSpec spec;
  int number = -1;                // on the wire; -1: not agreed on
  bool decided = false;           // has the ranks' verdict come?
  Status verdict;                 // not OK: why there can be no such plan
  bool devices_possible = false;  // tensors of it, on some rank, may lie on GPUs
  uint64_t asked_by = 0;          // the run that announced it
  int64_t last_use_ns = 0;        // when a tensor came, or plan_retirement.h asked about it

  PlanSteps steps;
  PlanLayout listed;
  std::optional<PlanLayout> observed;  // of the second step and later ones; none: `listed` goes on
  bool ordered = false;                // has rank 0 told the order?
  std::vector<int> first_step;         // the tensors in the order of their first arrival
  std::vector<EarlyArrival> early;     // in the order of arrival
  Reminder early_reminder;
  std::map<int64_t, std::vector<int>> never_came;  // by step, counted from 1, that is given up: tensors
  int64_t open = 0;                                // arrivals without an answer, zeros among them
  bool keeping = false;
  std::vector<KeptArrival> kept;  // while keeping
};

}  // namespace smddp
