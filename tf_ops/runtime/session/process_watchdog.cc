#include "runtime/session/process_watchdog.h"

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>

#include "core/process/log.h"

namespace smddp {
namespace {

constexpr int64_t kTickNs = 500 * 1000000LL;

}  // namespace

void ProcessWatchdog::Arm(double seconds, const std::string& why) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (deadline_) return;
  deadline_ = Deadline::After(seconds);
  why_ = why;
  changed_.notify_one();
}

void ProcessWatchdog::Disarm() {
  std::lock_guard<std::mutex> lock(mutex_);
  deadline_.reset();
}

void ProcessWatchdog::Watch(std::function<int64_t()> turns, double limit_s) {
  std::lock_guard<std::mutex> lock(mutex_);
  turns_ = std::move(turns);
  limit_s_ = limit_s;
  still_ticks_ = 0;
  changed_.notify_one();
}

void ProcessWatchdog::WatchLauncher(double seconds) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!launcher_found_) launcher_ = Launcher::Find();
  launcher_found_ = true;
  launcher_grace_s_ = seconds;
}

void ProcessWatchdog::LookForLauncher() {
  if (!launcher_ || launcher_->lives()) return;
  Log(LogLevel::kError, "The launcher of this job, process ", launcher_->process(),
      ", has died. This process is sent SIGTERM, as the launcher would have done.");
  launcher_.reset();
  if (launcher_grace_s_ > 0 && !deadline_) {
    deadline_ = Deadline::After(launcher_grace_s_);
    why_ = "The program has not ended after SIGTERM; it ends now.";
  }
  kill(getpid(), SIGTERM);
}

// Counts ticks of this thread, not time: while the whole process is stopped, the engine is not considered stuck.
void ProcessWatchdog::CountStill() {
  const int64_t turns = turns_();
  still_ticks_ = turns == last_turns_ ? still_ticks_ + 1 : 0;
  last_turns_ = turns;
}

std::optional<std::string> ProcessWatchdog::Verdict() {
  if (deadline_ && deadline_->passed()) return why_;
  if (!turns_) return std::nullopt;
  LookForLauncher();
  CountStill();
  if (still_ticks_ * kTickNs < limit_s_ * 1e9) return std::nullopt;
  return "The engine's thread has not returned from a call (probably of MPI) for " +
         std::to_string(static_cast<int>(limit_s_)) + " s; this process ends.";
}

void ProcessWatchdog::Loop() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    if (const auto why = Verdict()) {
      if (!why->empty()) Log(LogLevel::kError, *why);
      _exit(EXIT_FAILURE);
    }
    if (!deadline_ && !turns_) {
      changed_.wait(lock);
    } else {
      changed_.wait_for(lock, std::chrono::nanoseconds(kTickNs));
    }
  }
}

}  // namespace smddp
