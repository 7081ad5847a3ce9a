// Ends the process as a last resort, from a thread that waits for nothing and calls neither MPI nor Python.
//
// Threads: any may call it. It is never destroyed: its thread lives as long as the process.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "core/clock.h"
#include "core/env/launcher.h"

namespace smddp {

class ProcessWatchdog {
 public:
  ProcessWatchdog() : thread_([this] { Loop(); }) { thread_.detach(); }

  // After `seconds` prints `why`, unless it is empty, and ends the process with exit code 1, unless Disarm is called
  // before. Only the first call counts.
  void Arm(double seconds, const std::string& why);
  void Disarm();

  // When the launcher (or its daemon on this host) ends first, SIGTERM is sent to this process, so that a program can
  // save its state; `seconds` later the process ends. 0: only the signal. Processes in between, such as a shell, may
  // end.
  void WatchLauncher(double seconds);

  // `turns` counts the engine's rounds; when it does not change for `limit_s`, the process ends. Null: nothing is
  // watched.
  void Watch(std::function<int64_t()> turns, double limit_s);

 private:
  void Loop();
  // Why to end the process now; call it with the lock held.
  std::optional<std::string> Verdict();
  void CountStill();
  void LookForLauncher();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Deadline> deadline_;
  std::string why_;
  std::function<int64_t()> turns_;
  double limit_s_ = 0;
  std::optional<Launcher> launcher_;  // the watched launcher
  bool launcher_found_ = false;
  double launcher_grace_s_ = 0;
  int64_t last_turns_ = 0, still_ticks_ = 0;
  std::thread thread_;  // last: it uses the others
};

}  // namespace smddp
