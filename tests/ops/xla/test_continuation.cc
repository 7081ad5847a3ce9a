#include <future>
#include <thread>
#include <vector>

#include "native/testing.h"
#include "ops/xla/continuation.h"

namespace smddp::ops::xla_calls {
namespace {

TEST_CASE("continuation: items run in their order, on one thread that is not the caller's") {
  std::vector<int> ran;
  std::vector<std::thread::id> threads;
  std::promise<void> blocked, last;
  Continue([&] { blocked.get_future().wait(); });
  for (int item = 0; item < 5; ++item) {
    Continue([&, item] {
      ran.push_back(item);
      threads.push_back(std::this_thread::get_id());
    });
  }
  Continue([&] { last.set_value(); });
  CHECK(ran.empty());  // the caller does not run them
  blocked.set_value();
  last.get_future().wait();
  CHECK(ran == std::vector<int>{0, 1, 2, 3, 4});
  for (const std::thread::id& thread : threads) {
    CHECK((thread == threads[0]));
    CHECK((thread != std::this_thread::get_id()));
  }
}

TEST_CASE("continuation: an item may add another, which runs behind those that wait") {
  std::vector<int> ran;
  std::promise<void> begun, blocked, last;
  Continue([&] {
    begun.set_value();
    blocked.get_future().wait();
    Continue([&] {
      ran.push_back(2);
      last.set_value();
    });
    ran.push_back(0);
  });
  begun.get_future().wait();
  Continue([&] { ran.push_back(1); });
  blocked.set_value();
  last.get_future().wait();
  CHECK(ran == std::vector<int>{0, 1, 2});
}

}  // namespace
}  // namespace smddp::ops::xla_calls
