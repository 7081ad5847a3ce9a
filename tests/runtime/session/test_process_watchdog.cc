#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "native/testing.h"
#include "runtime/session/process_watchdog.h"

namespace smddp {
namespace {

constexpr int kUntilEnded = 20;  // seconds: on a busy machine the watchdog's thread may come late

// How a child ends that runs `body` with a watchdog and then sleeps so long: its exit code; 7: by itself.
template <class Body>
int EndOf(double seconds, Body&& body) {
  const pid_t child = fork();
  if (child == 0) {
    close(STDERR_FILENO);
    auto* const watchdog = new ProcessWatchdog;  // never destroyed
    body(watchdog);
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    _exit(7);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_CASE("watchdog: it ends the process in time, unless it is disarmed") {
  CHECK(EndOf(kUntilEnded, [](ProcessWatchdog* watchdog) { watchdog->Arm(0.1, "too long"); }) == 1);
  int disarmed = 0;
  for (int tries = 0; tries < 10 && disarmed != 7; ++tries) {  // the time may be over before it is disarmed
    disarmed = EndOf(1.2, [](ProcessWatchdog* watchdog) {
      watchdog->Arm(0.2, "too long");
      watchdog->Disarm();
    });
  }
  CHECK(disarmed == 7);
}

TEST_CASE("watchdog: an engine that stands still ends the process, one that turns does not") {
  CHECK(EndOf(kUntilEnded, [](ProcessWatchdog* watchdog) { watchdog->Watch([] { return int64_t{5}; }, 0.4); }) == 1);
  static std::atomic<int64_t> turns{0};
  CHECK(EndOf(1.2, [](ProcessWatchdog* watchdog) { watchdog->Watch([] { return ++turns; }, 0.4); }) == 7);
}

}  // namespace
}  // namespace smddp
