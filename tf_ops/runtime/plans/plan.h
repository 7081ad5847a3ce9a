// A plan: one list of gradients that all ranks reduce together, step after step. This file: its state on this rank,
// and the tensors that have arrived.
//
// Steps. The n-th reduction of every tensor belongs to step n. Each rank counts for itself, so ranks may be at
// different steps (plan_steps.h). The first step is reduced in buckets of the listed order. Rank 0 records in which
// order its tensors become ready in that step and sends the order to all ranks; from the second step on buckets
// follow it (runtime/planned/planned_reductions.h).
//
// Operation numbers, and so tags: the buckets of both layouts share one numbering. A number is reused in each step,
// but by one reduction at a time on each rank.
//
// Threads: the engine's.
#pragma once

#include <cstdint>
#include <deque>
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

// What the ranks have agreed on about a plan.
struct PlanAgreement {
  int number = -1;                // on the wire; -1: none yet
  bool decided = false;           // has the ranks' verdict arrived?
  Status verdict;                 // an error: why the plan was refused
  bool devices_possible = false;  // tensors of it may lie on GPUs, on some rank

  bool refused() const { return !verdict.ok(); }
};

struct Plan {
  // A tensor of the second or a later step that arrived before rank 0's order.
  struct EarlyArrival {
    Arrival arrival;
    int64_t since_ns = 0;
  };
  // A tensor that arrived while the plan may be about to be forgotten (plan_retirement.h).
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

  // The layout of `step`, counted from 0; null: not known yet.
  PlanLayout* LayoutOf(int64_t step) {
    if (step == 0) return &listed;
    if (!ordered) return nullptr;
    return observed ? &*observed : &listed;
  }
  template <class Visit>
  void ForEachBucket(Visit visit) {
    for (PlannedBucket& bucket : listed.buckets()) visit(&bucket);
    if (!observed) return;
    for (PlannedBucket& bucket : observed->buckets()) visit(&bucket);
  }

  std::string name;  // by which the ranks match
  PlanSpec spec;
  PlanAgreement agreed;
  uint64_t asked_by = 0;    // the run that announced it
  bool expected = false;    // a run has begun that brings all tensors, of which none has arrived
  int64_t last_use_ns = 0;  // when a tensor arrived, or plan_retirement.h asked about it

  PlanSteps steps;
  PlanLayout listed;
  std::optional<PlanLayout> observed;  // of the second and later steps; none: `listed` is still used
  bool ordered = false;                // has rank 0's order arrived?
  std::vector<int> first_step;         // the tensors in the order of their first arrival
  std::deque<EarlyArrival> early;      // in the order of arrival
  Reminder early_reminder;
  std::map<int64_t, std::vector<int>> missing_tensors;  // by given-up step, counted from 1: the missing tensors
  int64_t open = 0;                                     // arrivals without an answer, including zeros
  bool keeping = false;
  std::vector<KeptArrival> kept;  // while the plan is kept
};

}  // namespace smddp
