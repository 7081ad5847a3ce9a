// What ranks exchange to agree on a plan: everything that a rank that has joined needs to take part.
#pragma once

#include "fusion/plan.h"
#include "runtime/control/messages.h"

namespace smddp {

inline Announcement AnnouncementOf(const PlanSpec& spec) {
  Announcement announcement;
  announcement.kind = RequestKind::kPlan;
  for (const TensorSpec& tensor : spec.tensors) {
    announcement.dtypes.push_back(tensor.dtype);
    announcement.shapes.push_back(tensor.shape);
  }
  announcement.SetArithmetic(spec);
  announcement.facts = DescribePlan(spec);
  announcement.plan_key = spec.key;
  return announcement;
}

inline PlanSpec SpecOf(const Announcement& announcement) {
  PlanSpec spec;
  spec.SetArithmetic(announcement);
  spec.key = announcement.plan_key;
  for (size_t i = 0; i < announcement.dtypes.size(); ++i) {
    spec.tensors.push_back({announcement.dtypes[i], announcement.shapes[i]});
  }
  return spec;
}

}  // namespace smddp
