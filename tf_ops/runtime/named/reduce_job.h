// A group of tensors that is reduced together, for an allreduce or a reducescatter.
//
// A reducescatter is an allreduce of which each rank unpacks only its own rows. Inside a node this moves no
// additional data: every rank packs what others sum, sums its shard, and reads the rows it needs of the others' sums.
// Between nodes a rank sends up to twice the minimum, as many bytes as an allreduce. In return the rows are bitwise
// equal to those of the allreduce, the work is balanced even with few rows, and small ones fit into the
// announcements.
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

// `only_my_rows`: `output` of each tensor has room for these only.
std::shared_ptr<ReduceJob> MakeReduceJob(const Fabric& fabric, const AllreduceRequest& request, bool only_my_rows);

// `fabric` and `job` outlive the task.
TaskPtr BeginReduce(const Fabric& fabric, const ReduceJob& job, uint32_t operation);

}  // namespace smddp
