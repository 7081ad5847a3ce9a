// How the engine's thread waits. (test_loop_pace.py measures what a sleeping program costs.)
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "core/clock.h"
#include "native/testing.h"
#include "runtime/engine/loop_pace.h"

namespace {

std::atomic<int> yields{0}, yield_us{0};

}  // namespace

// In place of the C library's: counts, and can take as long as if another thread had run.
extern "C" int sched_yield() noexcept {
  ++yields;
  if (yield_us > 0) usleep(yield_us);
  return static_cast<int>(syscall(SYS_sched_yield));
}

namespace smddp {
namespace {

constexpr int64_t kMs = 1000 * 1000;

TEST_CASE("loop pace: cores for the ranks of a node") {
  CHECK(CoresFor(4, 8) == Cores::kPlenty);
  CHECK(CoresFor(4, 7) == Cores::kShared);
  CHECK(CoresFor(4, 4) == Cores::kShared);
  CHECK(CoresFor(4, 3) == Cores::kCrowded);
  CHECK(CoresFor(1, 1) == Cores::kShared);
}

double SecondsOf(LoopPace* pace, const Doorbell& bell, bool expecting, bool soundless, int64_t idle_ns) {
  const int64_t begin = NowNs();
  pace->Wait(bell.rings, expecting, soundless, idle_ns);
  return static_cast<double>(NowNs() - begin) / 1e9;
}

// The shortest of several tries, until one takes less than `enough`: during each, another thread may get the core.
template <class Try>
double ShortestOf(double enough, Try seconds_of_one) {
  const Deadline deadline = Deadline::After(20);
  double shortest = seconds_of_one();
  while (shortest >= enough && !deadline.passed()) shortest = std::min(shortest, seconds_of_one());
  return shortest;
}

TEST_CASE("loop pace: it does not sleep at first, then for longer and longer, and at once again when something moves") {
  Doorbell bell;
  constexpr double kFirstSleep = 50e-6;
  const auto five = [&bell] {
    LoopPace pace(bell, Cores::kCrowded, /*polled=*/false);
    double seconds = 0;
    for (int i = 0; i < 5; ++i) seconds += SecondsOf(&pace, bell, true, false, kMs);
    return seconds;
  };
  CHECK(ShortestOf(kFirstSleep, five) < kFirstSleep);  // spins
  CHECK(bell.sleeping == 0);
  LoopPace pace(bell, Cores::kCrowded, /*polled=*/false);
  double longest = 0;
  for (int i = 0; i < 5 + 12; ++i) longest = std::max(longest, SecondsOf(&pace, bell, true, false, kMs));
  CHECK(longest >= 0.0045);  // the last ones 5 ms
  CHECK(ShortestOf(0.0045, [&] { return SecondsOf(&pace, bell, true, /*soundless=*/true, kMs); }) < 0.0045);
  pace.EndRound(true, true, false, kMs);
  CHECK(pace.last_moved_ns() == kMs);
}

// How often it spins before it yields for the first time after something has moved.
int SpinsOf(LoopPace* pace, const Doorbell& bell) {
  pace->EndRound(true, true, true, NowNs());
  const int before = yields;
  int rounds = 0;
  for (; yields == before; ++rounds) pace->Wait(bell.rings, true, false, pace->last_moved_ns() + 1000);
  return rounds - 1;
}

TEST_CASE("loop pace: where a yield lets another thread run, it spins little for the next 20 ms") {
  Doorbell bell;
  LoopPace pace(bell, Cores::kPlenty, /*polled=*/true);
  CHECK(SpinsOf(&pace, bell) == 2000);
  int spins = 0;
  const Deadline deadline = Deadline::After(20);
  while (spins != 5 && !deadline.passed()) {  // the 20 ms may be over before the second count begins
    yield_us = 100;
    SpinsOf(&pace, bell);
    yield_us = 0;
    spins = SpinsOf(&pace, bell);
  }
  CHECK(spins == 5);
  usleep(25 * 1000);
  CHECK(SpinsOf(&pace, bell) == 2000);
}

TEST_CASE(
    "loop pace: where nothing is expected it sleeps until the bell rings, or 100 ms; 5 ms where others cannot ring") {
  Doorbell bell;
  LoopPace rings(bell, Cores::kShared, /*polled=*/false), polled(bell, Cores::kShared, /*polled=*/true);
  CHECK(SecondsOf(&rings, bell, false, false, kMs) >= 0.09);
  const double seconds = ShortestOf(0.09, [&] { return SecondsOf(&polled, bell, false, false, kMs); });
  CHECK(seconds >= 0.004);
  CHECK(seconds < 0.09);
  const uint32_t seen = bell.rings;
  bell.Ring();
  const auto rung = [&] {
    const int64_t begin = NowNs();
    rings.WaitLong(seen);
    return static_cast<double>(NowNs() - begin) / 1e9;
  };
  CHECK(ShortestOf(0.09, rung) < 0.09);
}

TEST_CASE("loop pace: ticks five times a second, looks at every 5 ms") {
  Doorbell bell;
  LoopPace pace(bell, Cores::kPlenty, false);
  int ticks = 0, looks = 0;
  for (int64_t now = 0; now <= 1000 * kMs; now += kMs) {
    ticks += pace.TickDue(now);
    looks += pace.LookDue(now);
  }
  CHECK(ticks == 4);  // more than 200 ms after the last one
  CHECK(looks == 166);
}

TEST_CASE("loop pace: slots are evacuated when nothing is expected, after many idle rounds, or a millisecond") {
  Doorbell bell;
  LoopPace pace(bell, Cores::kPlenty, false);
  CHECK(pace.MayEvacuate(false, 0));
  int first = 0;
  for (int round = 1; round <= 200 && first == 0; ++round) first = pace.MayEvacuate(true, 0) ? round : 0;
  CHECK(first == 64);
  CHECK(pace.MayEvacuate(true, kMs + 1));
  pace.EndRound(true, false, false, kMs);
  CHECK_FALSE(pace.MayEvacuate(true, kMs + 1));
  CHECK(pace.last_worked_ns() == 0);
}

}  // namespace
}  // namespace smddp
