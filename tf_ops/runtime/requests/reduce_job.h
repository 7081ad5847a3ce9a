// A group of tensors that is reduced together, for an allreduce or a reducescatter.
//
// A reducescatter sums to parts (collectives/node/parts.h), which are the ranks' rows: each rank sums its own, and
// sends the others their rows once. Where that is not possible, or few rows would be filled up to many, it is an
// allreduce of which each rank unpacks only its rows: between nodes this sends twice as much, but the work is balanced
// and small ones fit into the announcements. The rows are bitwise equal to those of an allreduce by direct exchange.
#pragma once

#include <memory>

#include "collectives/fabric.h"
#include "collectives/task.h"
#include "runtime/api/session.h"
#include "runtime/requests/inline_data.h"

namespace smddp {

struct ReduceJob {
  ReduceOp op = ReduceOp::kSum;
  FusedViews views;             // one for each run of equal dtypes, all quantised or none
  std::vector<bool> quantised;  // by view
  bool places_vary = false;
};

// Of kAllreduce or kReducescatter. `places_vary`: collectives/rail/selector.h.
std::shared_ptr<ReduceJob> MakeReduceJob(const Fabric& fabric, const Request& request, bool places_vary);

// `fabric` and `job` outlive the task.
TaskPtr BeginReduce(const Fabric& fabric, const ReduceJob& job, uint32_t operation);

}  // namespace smddp
