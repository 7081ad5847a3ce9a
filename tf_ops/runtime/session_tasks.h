// From requests that the ranks agree on to the tasks that carry them out.
//
// Threads: the engine's. What a task refers to must outlive it.
#pragma once

#include <memory>
#include <vector>

#include "collectives/fabric.h"
#include "collectives/task.h"
#include "runtime/announcement.h"
#include "runtime/reduce_job.h"
#include "runtime/session.h"
#include "runtime/verify.h"
#include "runtime/zero_memory.h"

namespace smddp {

TaskPtr BeginBroadcast(const Fabric& fabric, const BroadcastRequest& request, uint32_t operation);
// `job` is what the request was made of. No task: the verdict brought the result.
Result<TaskPtr> BeginReduction(const Fabric& fabric, const ReduceJob& job, const Verdict& verdict);
// The part of a rank that has joined. What the task refers to goes into `*keep`.
Result<TaskPtr> BeginAllreduceOfZeros(const Fabric& fabric, Verifier& verifier, const Verdict& verdict,
                                      ZeroMemory& zeros, std::shared_ptr<void>* keep);
// `watched` may be null: nothing is checked.
Result<TaskPtr> BeginAllgather(const Fabric& fabric, const AllgatherRequest& request, const Verdict& verdict,
                               Verification* watched);
TaskPtr BeginAlltoall(const Fabric& fabric, const AlltoallRequest& request, const Verdict& verdict,
                      const VerificationPtr& watched);

// What `announcement` says in brief.
VerifiedCall Describe(const Fabric& fabric, const Announcement& announcement, const std::vector<TensorRef>& tensors);

}  // namespace smddp
