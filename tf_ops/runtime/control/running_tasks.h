// The collectives under way on this rank.
//
// Threads: the engine's.
#pragma once

#include <cstdint>
#include <list>
#include <string>

#include "core/clock.h"
#include "core/status.h"
#include "runtime/control/running_task.h"

namespace smddp {

class RunningTasks {
 public:
  void Add(RunningTask task);
  // Steps each task once, and answers the callers of those that are done. True: something moved. An error: a task has
  // failed; it is still in the list.
  Result<bool> Step();
  // Answers all callers with `why`. `memory_in_use`: transfers may still write into the tasks' memory, which is then
  // kept until the process ends.
  void FailAll(const Status& why, bool memory_in_use);

  bool empty() const { return tasks_.empty(); }
  std::list<RunningTask>& all() { return tasks_; }
  const std::list<RunningTask>& all() const { return tasks_; }
  // When the oldest of them was requested; INT64_MAX when there is none.
  int64_t OldestNs() const;
  // The task that ended last, and when; at first "" and the start of the session.
  const std::string& last_done() const { return last_done_; }
  int64_t last_done_ns() const { return last_done_ns_; }

 private:
  std::list<RunningTask> tasks_;
  bool failed_ = false;
  std::string last_done_;
  int64_t last_done_ns_ = NowNs();
};

}  // namespace smddp
