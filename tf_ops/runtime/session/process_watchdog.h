// Ends the process when nothing else does: a thread that waits for nobody and calls neither MPI nor Python.
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
  ProcessWatchdog();

  // After `seconds` prints `why` and ends the process with exit code 1, unless Disarm comes before. The first one
  // counts.
  void Arm(double seconds, const std::string& why);
  void Disarm();

  // When the launcher (or its daemon on this host) ends first, SIGTERM is sent to this process, so that a program may
  // save what it has; `seconds` later it ends. 0: that alone. What is between the two, such as a shell, may end.
  void WatchLauncher(double seconds);

  // `turns` counts what the engine does; when it stands still for `limit_s`, the process ends. Null: nothing is
  // watched.
  void Watch(std::function<int64_t()> turns, double limit_s);

 private:
  void Loop();
  // Why to end now; with the lock held.
  std::optional<std::string> Verdict();
  void CountStill();
  void LookForLauncher();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Deadline> deadline_;
  std::string why_;
  std::function<int64_t()> turns_;
  double limit_s_ = 0;
  std::optional<Launcher> launcher_;  // that is watched
  bool launcher_found_ = false;
  double launcher_grace_s_ = 0;
  int64_t last_turns_ = 0, still_ticks_ = 0;
  std::thread thread_;  // last: it uses the others
};

}  // namespace smddp
