// SMDDP_VERIFY=1: the result of every collective is checked before its caller gets it.
//
// The task of a collective runs inside a task that checks it. The inputs are read before the collective begins, the
// outputs after it has ended. Then all ranks exchange what they have read (runtime/verify/verification.h) and compare
// it. What is wrong is an error of the task, kDataLoss, which ends the session on all ranks.
//
// Threads: the engine's.
#pragma once

#include <functional>
#include <optional>

#include "collectives/fabric.h"
#include "collectives/task.h"
#include "runtime/verify/verification.h"

namespace smddp {

class Verifier {
 public:
  // `fabric` outlives it.
  Verifier(const Fabric& fabric, bool on) : fabric_(fabric), on_(on) {}

  bool on() const { return on_; }

  // Makes the task of a collective; null: there is nothing to wait for. It receives the call, to set results that it
  // allocates; null where nothing is checked. The call outlives the task.
  using MakeTask = std::function<Result<TaskPtr>(VerifiedCall* call)>;
  // The same task with checks. Without a call nothing is checked; the ranks must agree on that.
  Result<TaskPtr> Begin(std::optional<VerifiedCall> call, uint32_t operation, const MakeTask& make_task) const;

 private:
  const Fabric& fabric_;
  const bool on_;
};

}  // namespace smddp
