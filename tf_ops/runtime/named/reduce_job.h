// A group of tensors that is reduced together: what an allreduce and a reducescatter are made of.
//
// A reducescatter is an allreduce of which each rank unpacks only its own rows. Inside a node nothing more is moved for
// that: every rank packs what others sum, sums its share, and reads what it wants of the others' sums. Between nodes it
// sends up to twice the bytes it must, as many as the allreduce. In return the rows have the bits of the allreduce,
// work is shared as evenly however few the rows are, and small ones travel in the announcements.
#pragma once

#include <memory>

#include "collectives/fabric.h"
#include "collectives/task.h"
#include "runtime/api/session.h"
#include "runtime/named/inline_reduction.h"

namespace smddp {

struct ReduceJob {
  ReduceOp op = ReduceOp::kSum;
  FusedViews views;  // one for each run of equal dtypes
};

// `only_my_rows`: `output` of each tensor has room for those alone.
std::shared_ptr<ReduceJob> MakeReduceJob(const Fabric& fabric, const AllreduceRequest& request, bool only_my_rows);

// `fabric` and `job` outlive the task.
TaskPtr BeginReduce(const Fabric& fabric, const ReduceJob& job, uint32_t operation);

}  // namespace smddp
