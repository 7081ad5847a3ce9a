#include <thread>

#include "core/sync/queue.h"
#include "native/testing.h"

namespace smddp {
namespace {

TEST_CASE("work runs in the order in which it was pushed, once") {
  WorkQueue queue;
  std::vector<int> ran;
  CHECK_FALSE(queue.RunAll());
  for (int i = 0; i < 5; ++i) CHECK(queue.Push([&ran, i] { ran.push_back(i); }));
  CHECK(ran.empty());
  CHECK(queue.RunAll());
  CHECK(ran == std::vector<int>{0, 1, 2, 3, 4});
  CHECK_FALSE(queue.RunAll());
  CHECK(ran.size() == 5);
}

TEST_CASE("work that is pushed by work runs in the next round") {
  WorkQueue queue;
  std::vector<int> ran;
  CHECK(queue.Push([&] {
    ran.push_back(1);
    CHECK(queue.Push([&ran] { ran.push_back(2); }));
  }));
  CHECK(queue.RunAll());
  CHECK(ran == std::vector<int>{1});
  CHECK(queue.RunAll());
  CHECK(ran == std::vector<int>{1, 2});
}

TEST_CASE("a closed queue takes nothing, leaves what it refuses, and runs what it has") {
  WorkQueue queue;
  int ran = 0;
  CHECK(queue.Push([&ran] { ran += 1; }));
  queue.Close();
  std::function<void()> late = [&ran] { ran += 10; };
  CHECK_FALSE(queue.Push(std::move(late)));
  REQUIRE(late);
  late();
  CHECK(queue.RunAll());
  CHECK(ran == 11);
}

TEST_CASE("each thread's work stays in order") {
  WorkQueue queue;
  constexpr int kThreads = 4, kEach = 1000;
  std::vector<std::vector<int>> ran(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int n = 0; n < kEach; ++n) queue.Push([&ran, t, n] { ran[t].push_back(n); });
    });
  }
  for (int rounds = 0; rounds < 100; ++rounds) queue.RunAll();
  for (std::thread& thread : threads) thread.join();
  queue.RunAll();
  for (const std::vector<int>& of_thread : ran) {
    REQUIRE(of_thread.size() == kEach);
    for (int n = 0; n < kEach; ++n) CHECK(of_thread[n] == n);
  }
}

}  // namespace
}  // namespace smddp
