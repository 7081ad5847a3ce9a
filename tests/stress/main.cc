// Whole jobs of ranks-as-threads, drawn from seeds:  stress [--seed N] [--seeds N] [--seconds S]
//
// Runs one seed after another until the time or the number is used up. What goes wrong is printed with its seed, which
// draws the same job and (as far as threads let it) the same delays again.
#if defined(STRESS_SANITIZED)
#include <sanitizer/common_interface_defs.h>
#endif
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>

#include "core/clock.h"
#include "core/process/log.h"
#include "core/sync/test_delay.h"
#include "stress/rank.h"

namespace stress {
namespace {

constexpr double kPatienceSeconds = 240;  // of one seed, on a slow and busy machine
std::atomic<uint64_t> g_seed{0};

void SayItStandsStill() { Fail("the job stands still"); }

// Ends the program when a seed takes too long.
class Watchdog {
 public:
  Watchdog() : thread_([this] { Watch(); }) {}
  ~Watchdog() {
    over_ = true;
    thread_.join();
  }

 private:
  void Watch() {
    const smddp::Deadline deadline = smddp::Deadline::After(kPatienceSeconds);
    while (!over_) {
      if (deadline.passed()) SayItStandsStill();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  std::atomic<bool> over_{false};
  std::thread thread_;
};

// Asks a session for what any thread may ask at any time.
class Observer {
 public:
  explicit Observer(smddp::SessionDiagnostics& session) : thread_([this, &session] { Watch(session); }) {}
  ~Observer() {
    over_ = true;
    thread_.join();
  }

 private:
  void Watch(smddp::SessionDiagnostics& session) {
    while (!over_) {
      session.TraceStart();
      (void)session.Stats();
      (void)session.RailAlgorithm(1000, smddp::DType::kFloat32);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      (void)session.TraceStop();
    }
  }
  std::atomic<bool> over_{false};
  std::thread thread_;
};

template <class Do>
void OnAll(int size, Do work) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) threads.emplace_back([&work, rank] { work(rank); });
  for (std::thread& thread : threads) thread.join();
}

// A last round in which not all is well; every request is answered none the less.
void EndBadly(const Script& script, smddp::InprocCluster& cluster, std::vector<std::unique_ptr<Rank>>& ranks) {
  Random random(script.seed ^ 0x5eed);
  const Round& round = script.rounds.back();
  const int leaves = Draw(random, script.size());
  std::vector<int> share;
  for (int rank = 0; rank < script.size(); ++rank)
    share.push_back(Draw(random, static_cast<int>(round.ops.size()) + 1));
  OnAll(script.size(), [&](int rank) {
    const bool stops = script.ending == Ending::kAllStop || rank == leaves;
    ranks[rank]->Begin(round, stops ? share[rank] : static_cast<int>(round.ops.size()));
    std::thread driver([&] { ranks[rank]->Drive(-1); });
    if (stops) cluster.Stop(rank);
    ranks[rank]->WaitAll();
    driver.join();
    cluster.Stop(rank);
    ranks[rank]->AskTheDead();
  });
}

void RunScript(const Script& script) {
  auto cluster = smddp::StartInprocCluster(script.options);
  if (!cluster.ok()) Fail(cluster.status().ToString());
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int rank = 0; rank < script.size(); ++rank) {
    ranks.push_back(std::make_unique<Rank>(script, (*cluster)->session(rank), rank));
  }
  const auto observer = script.observed ? std::make_unique<Observer>((*cluster)->session(0).diagnostics()) : nullptr;
  const std::string path = "/tmp/smddp-stress-" + std::to_string(getpid()) + "-" + std::to_string(script.seed);
  if (script.timeline) {
    const smddp::Status started = (*cluster)->session(0).diagnostics().StartTimeline(path, true);
    if (!started.ok()) Fail(started.ToString());
  }
  OnAll(script.size(), [&](int rank) {
    for (const Round& round : script.rounds) ranks[rank]->Run(round);
  });
  if (script.timeline) {
    (void)(*cluster)->session(0).diagnostics().StopTimeline();
    unlink(path.c_str());
    for (int rank = 1; rank < script.size(); ++rank) {
      unlink((path + ".rank" + std::to_string(rank) + ".part").c_str());
    }
  }
  if (script.ending == Ending::kAllDone) {
    OnAll(script.size(), [&](int rank) { (*cluster)->Stop(rank, /*at_exit=*/script.seed % 3 != 0 || rank % 2 == 0); });
  } else {
    EndBadly(script, **cluster, ranks);
  }
}

void RunSeed(uint64_t seed) {
  g_seed = seed;
#ifdef SMDDP_DELAYS
  smddp::SeedTestDelays(seed);
#endif
  const Watchdog watchdog;
  const Script script = DrawScript(seed);
  setenv("SMDDP_VERIFY", seed % 4 == 0 ? "1" : "0", 1);  // read when sessions start
  if (seed % 5 != 0) return RunScript(script);
  const Script beside = DrawScript(~seed);  // as a process set has sessions of its own in the same processes
  std::thread other([&] { RunScript(beside); });
  RunScript(script);
  other.join();
}

void SaySeed() {
  std::fprintf(stderr, "stress: this was seed %llu; run it alone with --seed\n",
               static_cast<unsigned long long>(g_seed.load()));
}

int Main(int count, char** arguments) {
  uint64_t seed = 1, seeds = ~uint64_t{0};
  double seconds = 30;
  for (int i = 1; i + 1 < count; i += 2) {
    const char* value = arguments[i + 1];
    if (std::strcmp(arguments[i], "--seed") == 0) {
      seed = std::strtoull(value, nullptr, 10);
      seeds = 1;
    } else if (std::strcmp(arguments[i], "--first") == 0) {
      seed = std::strtoull(value, nullptr, 10);
    } else if (std::strcmp(arguments[i], "--seeds") == 0) {
      seeds = std::strtoull(value, nullptr, 10);
    } else if (std::strcmp(arguments[i], "--seconds") == 0) {
      seconds = std::strtod(value, nullptr);
    }
  }
  smddp::SetLog(smddp::LogLevel::kOff, -1);
#if defined(STRESS_SANITIZED)
  __sanitizer_set_death_callback(&SaySeed);
#endif
  const smddp::Deadline deadline = smddp::Deadline::After(seconds);
  uint64_t done = 0;
  for (; done < seeds && (seeds != ~uint64_t{0} || !deadline.passed()); ++done) RunSeed(seed + done);
  if (done >= 20 && DrivenAnswers() == 0) Fail("no caller has driven");
  std::printf("stress: %llu jobs from seed %llu, nothing wrong; callers that drove have answered %lld requests\n",
              static_cast<unsigned long long>(done), static_cast<unsigned long long>(seed),
              static_cast<long long>(DrivenAnswers()));
  return 0;
}

}  // namespace

void Fail(const std::string& what) {
  static std::mutex one;
  one.lock();  // never given back: the first one that speaks ends the program
  std::fprintf(stderr, "stress: %s\n", what.c_str());
  SaySeed();
  _exit(1);
}

}  // namespace stress

int main(int count, char** arguments) { return stress::Main(count, arguments); }
