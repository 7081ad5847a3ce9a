#include <atomic>
#include <chrono>
#include <functional>

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

TEST_CASE("engine: a caller that drives does its own work, and then the engine's thread works again") {
  Job job({"a"});
  Engine& engine = job.ranks[0]->engine;
  std::thread::id first, then;
  bool answered = false;
  const auto request = [&] {
    CHECK(engine.Submit([&] {
      first = std::this_thread::get_id();
      answered = true;
    }));
  };
  engine.Drive(request, [&] { return answered; });
  CHECK(answered);
  CHECK((first == std::this_thread::get_id()));
  job.ranks[0]->Do([&] { then = std::this_thread::get_id(); });
  CHECK((then != first));
}

TEST_CASE("engine: who drives serves other threads, though it sleeps, and hands on what is left when it goes") {
  Job job({"a", "a"});
  Engine& engine = job.ranks[0]->engine;
  std::atomic<bool> over{false};
  std::thread driver([&] { engine.Drive([] {}, [&] { return over.load(); }); });
  for (int i = 0; i < 3; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // it sleeps
    std::thread::id on;
    job.ranks[0]->Do([&] { on = std::this_thread::get_id(); });
    CHECK((on == driver.get_id()));
  }
  PlanOrder order;
  order.plan = 3;
  job.ranks[1]->Do([&] { job.ranks[1]->engine.Post(0, Encode(order)); });
  CHECK(Soon([&] { return job.ranks[0]->component.messages == 1; }));
  std::future<std::string> long_one = job.ranks[0]->RunTask(200);
  job.ranks[0]->Do([&] { over = true; });
  driver.join();
  CHECK(long_one.get() == "ok");
  std::future<std::string> next = job.ranks[0]->RunTask(3);
  CHECK(next.get() == "ok");
}

TEST_CASE("engine: many threads submit and drive, each its own requests, and nothing is lost or done twice") {
  Job job({"a"});
  Engine& engine = job.ranks[0]->engine;
  int64_t done = 0;  // in rounds only
  std::atomic<int> drove{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&] {
      for (int i = 0; i < 500; ++i) {
        std::atomic<bool> answered{false};
        const std::thread::id caller_id = std::this_thread::get_id();
        const auto request = [&] {
          REQUIRE(engine.Submit([&] {
            ++done;
            drove += std::this_thread::get_id() == caller_id ? 1 : 0;
            answered = true;
          }));
        };
        engine.Drive(request, [&] { return answered.load(); });
        while (!answered) std::this_thread::yield();
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  job.ranks[0]->Do([&] { CHECK(done == 2000); });
  CHECK(drove > 0);
}

TEST_CASE("engine: the session's end and its failure reach a caller that drives") {
  Job ends({"a"});
  std::atomic<bool> drives{false};
  std::thread driver([&] {
    const auto answered = [&] {
      drives = true;
      return false;
    };
    ends.ranks[0]->engine.Drive([] {}, answered);
  });
  CHECK(Soon([&] { return drives.load(); }));
  ends.ranks[0]->engine.Stop();
  driver.join();
  CHECK(ends.ranks[0]->component.left == 1);

  Job fails({"a", "b"});
  std::future<std::string> waits = fails.ranks[0]->RunTask(0);  // for ever
  std::thread caller([&] {
    fails.ranks[0]->engine.Drive([] {},
                                 [&] { return waits.wait_for(std::chrono::seconds(0)) == std::future_status::ready; });
  });
  CHECK(fails.ranks[1]->RunTask(3, Status(Reason::kDataLoss, "a bit has flipped")).get() == "a bit has flipped");
  caller.join();
  CHECK(waits.get() == "a bit has flipped");
  CHECK(fails.ranks[0]->failures == 1);
}

TEST_CASE("engine: what a caller leaves is done at once, also where the engine's thread sleeps on the doorbell") {
  Job job({"a"});
  Engine& engine = job.ranks[0]->engine;
  double waited_s = 0;
  for (int i = 0; i < 8; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(15 + 10 * i));  // it sleeps for up to 100 ms
    std::promise<void> left;
    bool answered = false;
    const auto request = [&] {
      REQUIRE(engine.Submit([&] {
        answered = true;
        REQUIRE(engine.Submit([&] { left.set_value(); }));
      }));
    };
    engine.Drive(request, [&] { return answered; });
    const int64_t begin = NowNs();
    left.get_future().get();
    waited_s += static_cast<double>(NowNs() - begin) / 1e9;
  }
  CHECK(waited_s < 0.2);
}

TEST_CASE("engine: rounds go on while a caller is held up in its request") {
  Job job({"a", "a"});
  Engine& engine = job.ranks[0]->engine;
  std::promise<void> memory;  // which the request waits for, and a callback gives back
  bool answered = false;
  const auto request = [&] {
    std::thread other([&] { REQUIRE(engine.Submit([&] { memory.set_value(); })); });
    CHECK((memory.get_future().wait_for(std::chrono::seconds(20)) == std::future_status::ready));
    other.join();
    CHECK(job.ranks[0]->RunTask(5).get() == "ok");
    CHECK(engine.Submit([&] { answered = true; }));
  };
  engine.Drive(request, [&] { return answered; });
  CHECK(answered);
}

// As MPI's: it must be polled, and not every MPI allows that on another thread.
class Polled : public InprocTransport {
 public:
  using InprocTransport::InprocTransport;
  bool rings_doorbell() const override { return false; }
};

TEST_CASE("engine: nobody drives where a round may call MPI") {
  InprocHub hub(2);
  Env env;
  env.chunk_bytes = 4096;
  env.cpu_isa = "auto";
  for (const Hosts& hosts : {Hosts{"a", "b"}, Hosts{"a", "a"}}) {
    Topology topology = Value(Topology::Build(0, hosts));
    const auto memory = std::make_shared<std::vector<Segment>>();
    std::vector<std::byte*> segments;
    for (int member = 0; member < topology.local_size(); ++member) {
      memory->push_back(Value(Segment::Private(FabricParts::LayoutFor(topology, env).total_bytes)));
      segments.push_back(memory->back().data());
    }
    FabricParts parts(std::move(topology), env, RailChoice(), std::move(segments), memory,
                      std::make_unique<Polled>(hub, 0));
    RunningTasks tasks;
    Engine engine(parts, tasks, /*heartbeat_timeout_s=*/60, nullptr);
    engine.Start();
    bool drives = false;
    const auto answered = [&] { return drives = true; };
    engine.Drive([] {}, answered);
    CHECK(drives == (hosts[1] == "a"));
  }
}

}  // namespace
}  // namespace smddp
