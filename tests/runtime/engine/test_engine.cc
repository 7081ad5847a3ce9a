#include <atomic>
#include <chrono>

#include "native/fabrics.h"
#include "runtime/engine/engine.h"

namespace smddp {
namespace {

// Fails or ends at the step that the test names.
class Countdown : public Task {
 public:
  Countdown(int steps, Status end) : left_(steps), end_(std::move(end)) {}
  Result<Progress> Step() override {
    if (left_ == 0) return Progress::kWaiting;
    if (--left_ > 0) return Progress::kMoved;
    if (!end_.ok()) return end_;
    return Progress::kDone;
  }
  std::string Describe() const override { return "counting down"; }

 private:
  int left_;
  const Status end_;
};

struct Noting : Component {
  Status OnMessage(int from, std::string_view) override {
    last_from = from;
    ++messages;
    return Status::Ok();
  }
  void OnDeparture(int rank) override { departed = rank; }
  void OnFailure(const Status& why) override { failed_with.set_value(why.message()); }
  void OnLeave() override { ++left; }
  std::atomic<int> last_from{-1}, messages{0}, departed{-1}, left{0};
  std::promise<std::string> failed_with;
};

struct Rank {
  Rank(Fabrics& fabrics, int rank)
      : engine(*fabrics.parts[rank], tasks, /*heartbeat_timeout_s=*/60, [this](const Status&) { ++failures; }) {
    fabrics.hub.SetDoorbell(rank, &fabrics.parts[rank]->node().doorbell());
    engine.Add(&component, {ControlType::kPlanOrder});
    engine.Start();
  }
  // Runs on the engine thread, and waits for it.
  template <class Work>
  void Do(Work work) {
    std::promise<void> done;
    REQUIRE(engine.Submit([&] {
      work();
      done.set_value();
    }));
    done.get_future().get();
  }
  std::future<std::string> RunTask(int steps, const Status& end = Status::Ok()) {
    auto answer = std::make_shared<std::promise<std::string>>();
    Do([&] {
      RunningTask task;
      task.task = std::make_unique<Countdown>(steps, end);
      task.name = "allreduce 'x'";
      task.done = [answer](const Status& status) { answer->set_value(status.ok() ? "ok" : status.message()); };
      engine.Run(std::move(task));
    });
    return answer->get_future();
  }
  RunningTasks tasks;
  Noting component;
  std::atomic<int> failures{0};
  Engine engine;
};

struct Job {
  explicit Job(const Hosts& hosts) : fabrics(hosts) {
    for (int rank = 0; rank < fabrics.size(); ++rank) ranks.push_back(std::make_unique<Rank>(fabrics, rank));
  }
  ~Job() {
    std::vector<std::thread> stopping;
    for (auto& rank : ranks) stopping.emplace_back([&rank] { rank->engine.Stop(); });
    for (std::thread& one : stopping) one.join();
  }
  Fabrics fabrics;
  std::vector<std::unique_ptr<Rank>> ranks;
};

// Waits for at most 20 s.
template <class Condition>
bool Soon(Condition condition) {
  const Deadline deadline = Deadline::After(20);
  while (!condition() && !deadline.passed()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return condition();
}

TEST_CASE("engine: work is done in its order on one thread of the engine's, and none after its end") {
  Job job({"a"});
  std::vector<int> order;
  std::set<std::thread::id> threads;
  for (int i = 0; i < 50; ++i) {
    CHECK(job.ranks[0]->engine.Submit([&, i] {
      order.push_back(i);
      threads.insert(std::this_thread::get_id());
    }));
  }
  job.ranks[0]->Do([] {});
  REQUIRE(order.size() == 50);
  for (int i = 0; i < 50; ++i) CHECK(order[i] == i);
  CHECK(threads.size() == 1);
  CHECK(threads.count(std::this_thread::get_id()) == 0);
  job.ranks[0]->engine.Stop();
  CHECK_FALSE(job.ranks[0]->engine.Submit([] {}));
  CHECK(job.ranks[0]->component.left == 1);
}

TEST_CASE("engine: a task is stepped until it is done, then its caller is answered") {
  Job job({"a"});
  CHECK(job.ranks[0]->RunTask(30).get() == "ok");
  job.ranks[0]->Do([&] {
    CHECK(job.ranks[0]->tasks.empty());
    CHECK(job.ranks[0]->engine.OldestNs() == Component::kNever);
  });
}

TEST_CASE("engine: messages reach the component of their type on the other rank") {
  Job job({"a", "b", "b"});
  PlanOrder order;
  order.plan = 3;
  job.ranks[2]->Do([&] { job.ranks[2]->engine.Post(0, Encode(order)); });
  job.ranks[2]->Do([&] { job.ranks[2]->engine.Post(1, Encode(order)); });
  for (const int rank : {0, 1}) {
    CHECK(Soon([&] { return job.ranks[rank]->component.messages == 1; }));
    CHECK(job.ranks[rank]->component.last_from == 2);
  }
}

TEST_CASE("engine: a failed task ends the session on all ranks, and every caller gets that error") {
  Job job({"a", "b"});
  std::future<std::string> waits = job.ranks[0]->RunTask(0);  // for ever
  CHECK(job.ranks[1]->RunTask(3, Status(Reason::kDataLoss, "a bit has flipped")).get() == "a bit has flipped");
  CHECK(waits.get() == "a bit has flipped");
  for (auto& rank : job.ranks) {
    CHECK(rank->component.failed_with.get_future().get() == "a bit has flipped");
    CHECK(Soon([&] { return rank->failures == 1; }));
    rank->Do([&] {
      CHECK(rank->engine.failure().reason() == Reason::kDataLoss);
      rank->engine.Fail(Status(Reason::kInternal, "a second one"));  // the first counts
      CHECK(rank->engine.failure().reason() == Reason::kDataLoss);
    });
    CHECK(rank->failures == 1);
  }
}

TEST_CASE("engine: a rank that stops in the middle of a task takes the others along; one that is idle does not") {
  Job idle({"a", "b"});
  idle.ranks[1]->engine.Stop();
  CHECK(Soon([&] { return idle.ranks[0]->component.departed == 1; }));
  idle.ranks[0]->Do([&] { CHECK(idle.ranks[0]->engine.failure().ok()); });
  Job busy({"a", "b"});
  std::future<std::string> mine = busy.ranks[1]->RunTask(0), theirs = busy.ranks[0]->RunTask(0);
  busy.ranks[1]->engine.Stop();
  CHECK_FALSE(mine.get() == "ok");
  CHECK(Begins(theirs.get(), "Rank 1 ended its session"));
}

}  // namespace
}  // namespace smddp
