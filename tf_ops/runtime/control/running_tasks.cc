#include "runtime/control/running_tasks.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "runtime/control/operation_id.h"

namespace smddp {
namespace {

constexpr int kEnoughMoved = 2;
// Of more than these hardly one can move: each keeps up to four chunks in shared memory, which has room for eight.
constexpr int kFirst = 3;
constexpr int kIdleRounds = 8;  // the first may all wait for other ranks, and those behind them need not
constexpr int kAllEvery = 32;   // rounds: what is small does not wait long behind what is large

bool ComesBefore(const RunningTask& bucket, const RunningTask& other) {
  const std::optional<uint32_t>&mine = bucket.planned_operation, &its = other.planned_operation;
  return mine && its && PlanOf(*mine) == PlanOf(*its) && *mine < *its;
}

}  // namespace

void RunningTasks::Add(RunningTask task) {
  task.since_ns = NowNs();
  auto at = tasks_.end();
  while (at != tasks_.begin() && ComesBefore(task, *std::prev(at))) --at;
  tasks_.insert(at, std::move(task));
}

Result<bool> RunningTasks::Step() {
  int moved = 0;
  constexpr int kNoLimit = std::numeric_limits<int>::max();
  const bool step_all = ++rounds_ % kAllEvery == 0;
  const int enough = step_all ? kNoLimit : kEnoughMoved;
  int left = step_all || idle_rounds_ >= kIdleRounds ? kNoLimit : kFirst;
  for (auto at = tasks_.begin(); at != tasks_.end() && moved < enough && left > 0; --left) {
    SMDDP_ASSIGN_OR_RETURN(const Progress progress, at->task != nullptr ? at->task->Step() : Progress::kDone);
    moved += progress != Progress::kWaiting ? 1 : 0;
    if (progress != Progress::kDone) {
      ++at;
      continue;
    }
    RunningTask finished = std::move(*at);
    at = tasks_.erase(at);
    finished.task.reset();
    if (!finished.is_plan) {
      last_done_ = std::move(finished.name);
      last_done_ns_ = NowNs();
    }
    finished.done(Status::Ok());
    if (failed_) return true;  // sending to the other ranks failed, and the tasks are gone
  }
  idle_rounds_ = moved > 0 ? 0 : idle_rounds_ + 1;
  return moved > 0;
}

void RunningTasks::FailAll(const Status& why, bool memory_in_use) {
  failed_ = true;
  std::list<RunningTask> tasks = std::move(tasks_);
  tasks_.clear();
  for (RunningTask& running : tasks) {
    if (memory_in_use) (void)running.task.release();  // leaked on purpose
    running.task.reset();
    running.done(why);
  }
}

int64_t RunningTasks::OldestNs() const {
  int64_t oldest = std::numeric_limits<int64_t>::max();
  for (const RunningTask& running : tasks_) oldest = std::min(oldest, running.submitted_ns);
  return oldest;
}

}  // namespace smddp
