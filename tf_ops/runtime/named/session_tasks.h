// From requests that the ranks agree on to the tasks that carry them out.
//
// Threads: the engine's. What a task refers to must outlive it.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "collectives/fabric.h"
#include "collectives/task.h"
#include "runtime/api/session.h"
#include "runtime/control/messages.h"
#include "runtime/control/zero_memory.h"
#include "runtime/named/reduce_job.h"
#include "runtime/verify/verify.h"

namespace smddp {

TaskPtr BeginBroadcast(const Fabric& fabric, const BroadcastRequest& request, uint32_t operation);
// `job` is the job of the request. No task: the verdict contained the result.
Result<TaskPtr> BeginReduction(const Fabric& fabric, const ReduceJob& job, const Verdict& verdict);
// The part of a rank that has joined. What the task refers to is put into `*keep`.
Result<TaskPtr> BeginAllreduceOfZeros(const Fabric& fabric, const Verifier& verifier, const Verdict& verdict,
                                      ZeroMemory& zeros, std::shared_ptr<void>* keep);
// `verified` receives the results that are allocated; it outlives the task. Null: nothing is checked.
Result<TaskPtr> BeginAllgather(const Fabric& fabric, const AllgatherRequest& request, const Verdict& verdict,
                               VerifiedCall* verified);
TaskPtr BeginAlltoall(const Fabric& fabric, const AlltoallRequest& request, const Verdict& verdict,
                      VerifiedCall* verified);

// What to check of a call. Nothing without SMDDP_VERIFY.
std::optional<VerifiedCall> Describe(const Fabric& fabric, const Verifier& verifier, const Announcement& announcement,
                                     const std::vector<TensorRef>& tensors);

}  // namespace smddp
