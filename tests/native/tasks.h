// Tasks of several ranks, stepped in turn by one thread.
#pragma once

#include <vector>

#include "collectives/task.h"
#include "native/testing.h"
#include "transport/transport.h"

namespace smddp {

// Steps all tasks, one for each transport (null: none), until they are done. Fails after `patience` rounds in which
// nothing moves.
inline void RunTasks(std::vector<TaskPtr> tasks, const std::vector<Transport*>& transports, int patience) {
  for (int idle = 0; idle < patience;) {
    bool moved = false, left = false;
    for (size_t i = 0; i < transports.size(); ++i) {
      moved |= Value(transports[i]->Progress());
      if (tasks[i] == nullptr) continue;
      const Progress progress = Value(tasks[i]->Step());
      moved |= progress != Progress::kWaiting;
      if (progress == Progress::kDone) tasks[i].reset();
      left |= progress != Progress::kDone;
    }
    if (!left) return;
    idle = moved ? 0 : idle + 1;
  }
  FAIL("the tasks wait for one another");
}

}  // namespace smddp
