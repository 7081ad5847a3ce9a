#include <algorithm>

#include "collectives/task.h"
#include "native/testing.h"

namespace smddp {
namespace {

// Notes its steps, and is done in the last of so many.
class Noted : public Task {
 public:
  Noted(std::string name, int steps, std::vector<std::string>* log, Progress before = Progress::kMoved)
      : name_(std::move(name)), left_(steps), log_(log), before_(before) {}
  Result<Progress> Step() override {
    log_->push_back(name_);
    return --left_ == 0 ? Progress::kDone : before_;
  }
  std::string Describe() const override { return name_; }

 private:
  const std::string name_;
  int left_;
  std::vector<std::string>* const log_;
  const Progress before_;
};

class Failing : public Task {
 public:
  Result<Progress> Step() override { return Status(Reason::kTransportFailed, "broken"); }
  std::string Describe() const override { return "failing"; }
};

using Log = std::vector<std::string>;

// The number of steps until it is done.
int StepsOf(Task* task) {
  for (int steps = 1; steps < 1000; ++steps) {
    if (Value(task->Step()) == Progress::kDone) return steps;
  }
  return -1;
}

TEST_CASE("task: a sequence makes each stage when the one before is done") {
  Log log;
  std::vector<TaskFactory> stages = {
      [&]() -> TaskPtr {
        log.push_back("make a");
        return std::make_unique<Noted>("a", 2, &log);
      },
      [&]() -> TaskPtr {
        log.push_back("nothing to do");
        return nullptr;
      },
      [&]() -> TaskPtr {
        log.push_back("make b");
        return std::make_unique<Noted>("b", 1, &log);
      },
  };
  const TaskPtr task = Sequence(std::move(stages));
  CHECK(task->Describe() == "about to start");
  CHECK(Value(task->Step()) == Progress::kMoved);
  CHECK(log == Log{"make a", "a"});
  CHECK(task->Describe() == "a");
  CHECK(Value(task->Step()) == Progress::kDone);
  CHECK(log == Log{"make a", "a", "a", "nothing to do", "make b", "b"});
  CHECK(Value(Sequence({})->Step()) == Progress::kDone);
}

TEST_CASE("task: a sequence that only waits says so") {
  Log log;
  const TaskPtr task =
      Sequence({[&]() -> TaskPtr { return std::make_unique<Noted>("a", 3, &log, Progress::kWaiting); }});
  CHECK(Value(task->Step()) == Progress::kWaiting);
  CHECK(Value(task->Step()) == Progress::kWaiting);
  CHECK(Value(task->Step()) == Progress::kDone);
}

TEST_CASE("task: branches go on beside one another") {
  Log log;
  std::vector<TaskPtr> branches;
  branches.push_back(std::make_unique<Noted>("a", 3, &log, Progress::kWaiting));
  branches.push_back(std::make_unique<Noted>("b", 1, &log));
  const TaskPtr task = Parallel(std::move(branches));
  CHECK(Value(task->Step()) == Progress::kMoved);
  CHECK(Value(task->Step()) == Progress::kWaiting);
  CHECK(task->Describe() == "a");
  CHECK(Value(task->Step()) == Progress::kDone);
  CHECK(log == Log{"a", "b", "a", "a"});
}

TEST_CASE("task: many things are done a few in a step") {
  std::vector<std::pair<int64_t, int64_t>> visited;
  const auto visit = [&](Range range) { visited.emplace_back(range.begin, range.end); };
  CHECK(StepsOf(InSteps("copying", 10, 4, visit).get()) == 3);
  CHECK(visited == std::vector<std::pair<int64_t, int64_t>>{{0, 4}, {4, 8}, {8, 10}});
  visited.clear();
  CHECK(StepsOf(InSteps("copying", 0, 4, visit).get()) == 1);
  CHECK(visited.empty());
}

TEST_CASE("task: one that asks until it is told so") {
  int asked = 0;
  const TaskPtr task = Until("looking", [&]() -> Result<bool> { return ++asked == 3; });
  CHECK(task->Describe() == "looking");
  for (int step = 0; step < 2; ++step) CHECK(Value(task->Step()) == Progress::kWaiting);
  CHECK(Value(task->Step()) == Progress::kDone);
  CHECK(asked == 3);
  const Status why(Reason::kBadState, "gone");
  CHECK(Until("looking", [&]() -> Result<bool> { return why; })->Step().status().message() == "gone");
}

TEST_CASE("task: a pipeline keeps a window of fragments, of which a late one holds back those far behind it") {
  Log log;
  std::vector<int> made;
  const TaskPtr task = Pipeline(6, 3, [&](int index) -> TaskPtr {
    made.push_back(index);
    return std::make_unique<Noted>(std::to_string(index), index == 1 ? 4 : 1, &log);
  });
  CHECK(Value(task->Step()) == Progress::kMoved);
  CHECK(made == std::vector<int>{0, 1, 2});
  CHECK(Value(task->Step()) == Progress::kMoved);  // 0 is done: 3 may start; 4 not before 1 is done
  CHECK(made == std::vector<int>{0, 1, 2, 3});
  CHECK(Has(task->Describe(), "piece 2 of 6, 1"));
  CHECK(Value(task->Step()) == Progress::kMoved);
  CHECK(made.size() == 4);
  CHECK(Value(task->Step()) == Progress::kMoved);
  CHECK(Value(task->Step()) == Progress::kDone);
  CHECK(made == std::vector<int>{0, 1, 2, 3, 4, 5});
  CHECK(std::count(log.begin(), log.end(), "1") == 4);
  CHECK(Value(Pipeline(0, 3, nullptr)->Step()) == Progress::kDone);
}

TEST_CASE("task: an error of a part is that of the whole") {
  const auto failing = []() -> TaskPtr { return std::make_unique<Failing>(); };
  CHECK(Sequence({failing})->Step().status().message() == "broken");
  std::vector<TaskPtr> branches;
  branches.push_back(failing());
  CHECK(Parallel(std::move(branches))->Step().status().message() == "broken");
  CHECK(Pipeline(2, 1, [&](int) { return failing(); })->Step().status().message() == "broken");
}

}  // namespace
}  // namespace smddp
