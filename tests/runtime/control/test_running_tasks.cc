// The order in which a rank steps the collectives that are under way.
#include "native/testing.h"
#include "runtime/control/operation_id.h"
#include "runtime/control/running_tasks.h"
#include "transport/transport.h"

namespace smddp {
namespace {

constexpr std::nullopt_t kNotPlanned = std::nullopt;

// Which of these tasks ends when, all of which can end at once.
std::vector<int> EndsOf(const std::vector<std::optional<uint32_t>>& tasks) {
  RunningTasks running;
  std::vector<int> ended;
  for (size_t i = 0; i < tasks.size(); ++i) {
    RunningTask task;
    task.done = [&ended, i](const Status& status) {
      CHECK(status.ok());
      ended.push_back(static_cast<int>(i));
    };
    task.planned_operation = tasks[i];
    running.Add(std::move(task));
  }
  while (!running.empty()) Value(running.Step());
  return ended;
}

class FakeTask : public Task {
 public:
  explicit FakeTask(Result<Progress> answer, bool* alive = nullptr) : answer_(std::move(answer)), alive_(alive) {
    if (alive_ != nullptr) *alive_ = true;
  }
  ~FakeTask() override {
    if (alive_ != nullptr) *alive_ = false;
  }
  Result<Progress> Step() override { return answer_; }
  std::string Describe() const override { return "fake"; }

 private:
  const Result<Progress> answer_;
  bool* const alive_;
};

RunningTask Running(TaskPtr task, DoneCallback done) {
  RunningTask running;
  running.task = std::move(task);
  running.done = std::move(done);
  return running;
}

// The round in which a task ends that could end in the first one, behind `ahead` that never do; they move or wait.
int RoundOfLast(int ahead, bool they_move) {
  RunningTasks running;
  const Progress progress = they_move ? Progress::kMoved : Progress::kWaiting;
  for (int i = 0; i < ahead; ++i) running.Add(Running(std::make_unique<FakeTask>(progress), [](const Status&) {}));
  bool ended = false;
  running.Add(Running(nullptr, [&ended](const Status&) { ended = true; }));
  int round = 0;
  for (; !ended && round < 1000; ++round) Value(running.Step());
  return round;
}

TEST_CASE("running tasks: buckets of a plan are stepped in its order, whichever came first") {
  CHECK(EndsOf({PlannedOperation(3, 2), PlannedOperation(3, 0), PlannedOperation(3, 1)}) == std::vector<int>{1, 2, 0});
}

TEST_CASE("running tasks: what came first stays first between plans and other tasks") {
  CHECK(EndsOf({PlannedOperation(1, 5), kNotPlanned, PlannedOperation(1, 2), PlannedOperation(0, 9),
                PlannedOperation(0, 4), kNotPlanned, PlannedOperation(0, 7)}) == std::vector<int>{0, 1, 2, 4, 3, 5, 6});
}

TEST_CASE("running tasks: a task behind others does not wait long") {
  CHECK(RoundOfLast(2, false) == 1);  // the first three are stepped in every round
  CHECK(RoundOfLast(3, false) == 9);  // all, after eight rounds in which nothing moved
  CHECK(RoundOfLast(50, false) == 9);
  CHECK(RoundOfLast(1, true) == 1);   // a round ends when two have moved
  CHECK(RoundOfLast(2, true) == 32);  // every 32nd steps all
  CHECK(RoundOfLast(50, true) == 32);
}

TEST_CASE("running tasks: a caller is answered once, after its task is gone") {
  RunningTasks running;
  bool alive = false;
  int answers = 0;
  RunningTask one = Running(std::make_unique<FakeTask>(Progress::kDone, &alive), [&](const Status&) {
    CHECK_FALSE(alive);
    ++answers;
  });
  one.name = "loss";
  running.Add(std::move(one));
  CHECK(alive);
  CHECK(running.last_done().empty());
  CHECK(Value(running.Step()));
  CHECK(answers == 1);
  CHECK(running.empty());
  CHECK(running.last_done() == "loss");
  CHECK_FALSE(Value(running.Step()));
}

TEST_CASE("running tasks: a task that fails stays in the list until all are answered with the cause") {
  RunningTasks running;
  std::vector<std::string> answers;
  const auto answer = [&answers](const Status& status) { answers.push_back(status.message()); };
  bool alive = false;
  running.Add(Running(std::make_unique<FakeTask>(Status(Reason::kTransportFailed, "broken"), &alive), answer));
  running.Add(Running(std::make_unique<FakeTask>(Progress::kWaiting), answer));
  CHECK(running.Step().status().message() == "broken");
  CHECK(running.all().size() == 2);
  CHECK(answers.empty());
  running.FailAll(Status(Reason::kShutDown, "over"), false);
  CHECK(answers == std::vector<std::string>{"over", "over"});
  CHECK_FALSE(alive);
  CHECK(running.empty());
}

TEST_CASE("running tasks: the oldest is the one that was requested first") {
  RunningTasks running;
  CHECK(running.OldestNs() == INT64_MAX);
  for (const int64_t submitted : {50, 20, 70}) {
    RunningTask one = Running(std::make_unique<FakeTask>(Progress::kWaiting), [](const Status&) {});
    one.submitted_ns = submitted;
    running.Add(std::move(one));
  }
  CHECK(running.OldestNs() == 20);
}

TEST_CASE("operation numbers: plans, buckets and named requests are told apart") {
  CHECK(PlannedOperation(0, 0) == 0);
  CHECK(PlannedOperation(3, 7) == 3 * kMaxBuckets + 7);
  CHECK(PlanOf(PlannedOperation(kMaxPlans - 1, kMaxBuckets - 1)) == kMaxPlans - 1);
  CHECK(PlannedOperation(kMaxPlans - 1, kMaxBuckets - 1) < NamedOperation(0, 1, 0));
  for (const int size : {1, 3, 1000}) {
    const uint32_t share = ((1u << 23) - 1) / static_cast<uint32_t>(size);
    for (int coordinator = 0; coordinator < size; ++coordinator) {
      const uint32_t first = NamedOperation(coordinator, size, 0), last = NamedOperation(coordinator, size, share - 1);
      CHECK(last == first + share - 1);
      CHECK(last < kMaxOperation);
      CHECK(NamedOperation(coordinator, size, share) == first);  // each counts through its own range
      if (coordinator > 0) CHECK(first > NamedOperation(coordinator - 1, size, share - 1));
    }
  }
}

}  // namespace
}  // namespace smddp
