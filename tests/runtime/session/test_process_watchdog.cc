#include <sys/wait.h>
#include <unistd.h>

#include <atomic>

#include "native/testing.h"
#include "runtime/session/process_watchdog.h"

namespace smddp {
namespace {

// How a child ends that runs `body` with a watchdog and then sleeps for a second: its exit code; 7: by itself.
template <class Body>
int EndOf(Body&& body) {
  const pid_t child = fork();
  if (child == 0) {
    close(STDERR_FILENO);
    auto* const watchdog = new ProcessWatchdog;  // never destroyed
    body(watchdog);
    usleep(1'200'000);
    _exit(7);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_CASE("watchdog: it ends the process in time, unless it is disarmed") {
  CHECK(EndOf([](ProcessWatchdog* watchdog) { watchdog->Arm(0.1, "too long"); }) == 1);
  CHECK(EndOf([](ProcessWatchdog* watchdog) {
          watchdog->Arm(0.2, "too long");
          watchdog->Disarm();
        }) == 7);
}

TEST_CASE("watchdog: an engine that stands still ends the process, one that turns does not") {
  CHECK(EndOf([](ProcessWatchdog* watchdog) { watchdog->Watch([] { return int64_t{5}; }, 0.4); }) == 1);
  static std::atomic<int64_t> turns{0};
  CHECK(EndOf([](ProcessWatchdog* watchdog) { watchdog->Watch([] { return ++turns; }, 0.4); }) == 7);
}

}  // namespace
}  // namespace smddp
