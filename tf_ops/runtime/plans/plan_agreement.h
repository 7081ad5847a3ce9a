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
  announcement.op = spec.op;
  announcement.prescale = spec.prescale;
  announcement.postscale = spec.postscale;
  announcement.wire_dtype = spec.wire_dtype;
  announcement.facts = DescribePlan(spec);
  announcement.plan_key = spec.key;
  return announcement;
}

inline PlanSpec SpecOf(const Announcement& announcement) {
  PlanSpec spec;
  spec.key = announcement.plan_key;
  for (size_t i = 0; i < announcement.dtypes.size(); ++i) {
    spec.tensors.push_back({announcement.dtypes[i], announcement.shapes[i]});
  }
  spec.op = announcement.op;
  spec.prescale = announcement.prescale;
  spec.postscale = announcement.postscale;
  spec.wire_dtype = announcement.wire_dtype;
  return spec;
}

}  // namespace smddp
