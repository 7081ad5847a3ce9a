// Who runs the engine's rounds. (test_engine.cc has the rounds.)
#include <future>
#include <thread>

#include "core/clock.h"
#include "native/testing.h"
#include "runtime/engine/driving.h"

namespace smddp {
namespace {

constexpr int64_t kMs = 1000 * 1000;

double SecondsOf(Driving* driving, bool* turn) {
  const int64_t begin = NowNs();
  *turn = driving->AwaitTurn();
  return static_cast<double>(NowNs() - begin) / 1e9;
}

TEST_CASE("driving: one thread at a time") {
  Doorbell doorbell;
  Driving driving(doorbell);
  CHECK_FALSE(driving.begun());
  REQUIRE(driving.Begin());
  CHECK_FALSE(driving.Begin());
  std::thread([&] {
    CHECK_FALSE(driving.Begin());
    CHECK(driving.begun());
  }).join();
  driving.End();
  CHECK_FALSE(driving.begun());
  std::thread([&] { CHECK(driving.Begin()); }).join();
}

TEST_CASE("driving: the engine's thread is parked while somebody drives, looks now and then afterwards, and is free") {
  Doorbell doorbell;
  Driving driving(doorbell);
  bool turn = false;
  CHECK(SecondsOf(&driving, &turn) < 0.05);
  CHECK(turn);
  CHECK_FALSE(driving.parked());
  REQUIRE(driving.Begin());
  CHECK(SecondsOf(&driving, &turn) >= 0.0045);
  CHECK_FALSE(turn);
  CHECK(driving.parked());
  driving.End();
  const int64_t ended_ns = NowNs();
  int looks = 0;
  do {
    CHECK(driving.AwaitTurn());
    ++looks;
  } while (driving.parked());
  CHECK(NowNs() - ended_ns >= 10 * kMs);
  CHECK(looks > 1);
}

TEST_CASE("driving: work wakes the parked thread and keeps it awake, and rings for who sleeps on the doorbell") {
  Doorbell doorbell;
  Driving driving(doorbell);
  bool turn = false;
  REQUIRE(driving.Begin());
  driving.End();
  driving.Wake();
  CHECK(driving.AwaitTurn());
  CHECK_FALSE(driving.parked());
  REQUIRE(driving.Begin());
  driving.End();
  CHECK(driving.AwaitTurn());
  CHECK(driving.parked());  // it has looked, and would again
  driving.Wake();
  CHECK(SecondsOf(&driving, &turn) < 0.05);
  CHECK_FALSE(driving.parked());
  CHECK(doorbell.rings == 2);
  // Woken in its sleep: on average before the 5 ms are over.
  REQUIRE(driving.Begin());
  std::atomic<int> rounds{0};
  std::thread parked([&] {
    while (!driving.AwaitTurn()) ++rounds;
  });
  const int64_t begin = NowNs();
  while (!driving.parked()) std::this_thread::yield();
  driving.End();
  driving.Wake();
  parked.join();
  CHECK(NowNs() - begin < 1000 * kMs);
}

}  // namespace
}  // namespace smddp
