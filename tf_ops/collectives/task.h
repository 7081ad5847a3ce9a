// One running collective, cut into small steps so that many can share one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/buffer.h"
#include "core/status.h"

namespace smddp {

enum class Progress {
  kWaiting,  // nothing could be done
  kMoved,    // something was done, more is left
  kDone,
};

// Threads:   one, the engine's. Steps of different tasks are interleaved.
// Contract:  Step never blocks. It is not called again after kDone or an error. A task that is destroyed before kDone
//            leaves no transfer behind only if its transport was aborted first.
class Task {
 public:
  virtual ~Task() = default;
  virtual Result<Progress> Step() = 0;
  // Such as "direct exchange, waiting for rank 2"; for the stall watch.
  virtual std::string Describe() const = 0;
};
using TaskPtr = std::unique_ptr<Task>;
using TaskFactory = std::function<Result<TaskPtr>()>;

// Runs stages one after another; a stage is made when the one before it is done. A factory may return null: nothing
// to do; an error is the task's.
TaskPtr Sequence(std::vector<TaskFactory> stages);
// Runs all branches concurrently; done when all are.
TaskPtr Parallel(std::vector<TaskPtr> branches);
// Calls `step` until it says kDone, or its error.
TaskPtr Repeat(std::string name, std::function<Result<Progress>()> step);
// Does `count` things, at most `at_once` of them in a step: visit(range) for one range after another.
TaskPtr InSteps(std::string name, int64_t count, int64_t at_once, std::function<void(Range)> visit);
// Copies `into.size` bytes from `from`; both outlive the task. Null when there is nothing to copy. In steps: a large
// memcpy would block the engine for seconds, and the watchdog would report it as dead.
TaskPtr Copy(BufferView into, const void* from);
// Done when `done` says so, or its error. It is asked in every step.
TaskPtr Until(std::string name, std::function<Result<bool>()> done);
// Starts fragments 0, 1, 2, ... in order; earlier ones step first. Fragment k + window starts only after fragment k
// is done, however many of those between are done: tags keep only the low bits of k.
TaskPtr Pipeline(int fragments, int window, std::function<TaskPtr(int)> fragment);

}  // namespace smddp
