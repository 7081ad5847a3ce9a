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

// Of all its tensors, unpacked.
int64_t BytesOf(const Announcement& request);
// May the request be reduced together with others? Large ones gain nothing. Their algorithm then is one that gives the
// same sums at every position (rail/selector.h).
bool MayBeFused(const Announcement& request);

}  // namespace smddp
