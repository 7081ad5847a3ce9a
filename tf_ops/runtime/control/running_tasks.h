// The collectives under way on this rank.
//
// Threads: the engine's.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>

#include "collectives/task.h"
#include "core/clock.h"
#include "runtime/api/session.h"
#include "runtime/control/reminder.h"

namespace smddp {

// A collective under way, with the callback of its caller.
struct RunningTask {
  TaskPtr task;
  DoneCallback done;           // called once, after the task is destroyed
  std::shared_ptr<void> keep;  // what the task refers to
  std::string name;
  int64_t since_ns = 0;                       // when the task started
  int64_t submitted_ns = 0;                   // when the caller made the request
  Reminder reminder;                          // of the stall watch
  bool is_plan = false;                       // an agreement on a plan, which the program did not ask for
  std::optional<uint32_t> planned_operation;  // of a bucket of a plan (operation_id.h)
};

class RunningTasks {
 public:
  // Behind all others; buckets of one plan in the plan's order, in which ranks move the same ones, whichever became
  // complete first on each.
  void Add(RunningTask task);
  // Steps the tasks in order, and answers the callers of those that are done. In most rounds it steps the first few
  // and stops when some have moved: more at a time push one another's data out of the caches, and have no room in
  // shared memory (docs/decisions/0006). After some rounds in which nothing moved it steps all. True: something moved.
  // An error: a task has failed; it is still in the list.
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
  int64_t rounds_ = 0;
  int64_t idle_rounds_ = 0;  // the latest, in which nothing moved
  bool failed_ = false;
  std::string last_done_;
  int64_t last_done_ns_ = NowNs();
};

}  // namespace smddp
