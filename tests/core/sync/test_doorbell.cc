#include <thread>

#include "core/clock.h"
#include "core/sync/doorbell.h"
#include "native/testing.h"

namespace smddp {
namespace {

double SecondsOf(Doorbell* bell, uint32_t seen, int64_t microseconds) {
  const int64_t begin = NowNs();
  bell->Sleep(seen, microseconds);
  return static_cast<double>(NowNs() - begin) / 1e9;
}

TEST_CASE("a bell that was rung since it was looked at does not let sleep") {
  Doorbell bell;
  const uint32_t seen = bell.rings;
  bell.Ring();
  CHECK(bell.rings == seen + 1);
  CHECK(SecondsOf(&bell, seen, 20'000'000) < 10);
  CHECK(bell.sleeping == 0);
}

TEST_CASE("a bell that nobody rings lets sleep for the given time") {
  Doorbell bell;
  bell.Ring();
  const double slept = SecondsOf(&bell, bell.rings, 30'000);
  CHECK(slept >= 0.029);
  CHECK(slept < 10);
}

TEST_CASE("a ring wakes the sleeper") {
  Doorbell bell;
  const uint32_t seen = bell.rings;
  std::thread ringer([&bell] {
    while (bell.sleeping == 0) std::this_thread::yield();
    bell.Ring();
  });
  CHECK(SecondsOf(&bell, seen, 60'000'000) < 50);
  ringer.join();
}

TEST_CASE("no ring is lost among many") {
  Doorbell bell;
  std::atomic<int> work{0};
  constexpr int kThreads = 3, kEach = 2000;
  std::vector<std::thread> ringers;
  for (int i = 0; i < kThreads; ++i) {
    ringers.emplace_back([&] {
      for (int n = 0; n < kEach; ++n) {
        ++work;
        bell.Ring();
      }
    });
  }
  int done = 0;
  const Deadline deadline = Deadline::After(50);  // a lost ring would cost a minute
  while (done < kThreads * kEach && !deadline.passed()) {
    const uint32_t seen = bell.rings;
    const int found = work.exchange(0);
    done += found;
    if (found == 0) bell.Sleep(seen, 60'000'000);
  }
  CHECK(done == kThreads * kEach);
  for (std::thread& ringer : ringers) ringer.join();
}

}  // namespace
}  // namespace smddp
