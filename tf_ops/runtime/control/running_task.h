// A collective under way, with the callback of its caller.
#pragma once

#include <memory>
#include <string>

#include "collectives/task.h"
#include "runtime/api/session.h"
#include "runtime/control/reminder.h"

namespace smddp {

struct RunningTask {
  TaskPtr task;
  DoneCallback done;           // called once, after the task is destroyed
  std::shared_ptr<void> keep;  // what the task refers to
  std::string name;
  int64_t since_ns = 0;      // when the task started
  int64_t submitted_ns = 0;  // when the caller made the request
  Reminder reminder;         // of the stall watch
  bool is_plan = false;      // an agreement on a plan, which the program did not ask for
};

}  // namespace smddp
