// A request that all ranks make under one name.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "collectives/task.h"
#include "runtime/api/session.h"
#include "runtime/control/messages.h"

namespace smddp {

struct NamedRequest {
  Announcement announcement;
  // Makes the task once the ranks agree; null: there are no data to move (barrier, plan).
  std::function<Result<TaskPtr>(const Verdict&)> begin;
  DoneCallback done;
  std::shared_ptr<void> keep;      // what the task refers to
  std::vector<TensorRef> tensors;  // of an allreduce
  int64_t submitted_ns = 0;
};

}  // namespace smddp
