// Waiting for a request from a Python thread.
#pragma once

#include <nanobind/nanobind.h>
#include <sched.h>

#include <chrono>
#include <future>
#include <memory>

#include "core/clock.h"
#include "python/errors.h"
#include "runtime/api/session.h"

namespace smddp {

// Every request is answered, at the latest when its session ends (runtime/api/session.h).
class Waiter {
 public:
  DoneCallback callback() {
    return [ended = ended_](const Status& status) { ended->set_value(status); };
  }
  // Without the GIL. Polls for a moment before it sleeps: waking a thread takes as long as a small request
  // (runtime/engine/loop_pace.h). May be called again, and by several threads.
  Status Wait() const {
    (void)WaitFor(std::chrono::hours(24 * 365));
    return status_.get();
  }
  // False: it has not ended within that time.
  bool WaitFor(std::chrono::duration<double> limit) const {
    nanobind::gil_scoped_release release;
    const auto is_ready = [&] { return status_.wait_for(std::chrono::seconds(0)) == std::future_status::ready; };
    const int64_t start_ns = NowNs();
    while (limit.count() > 0 && !is_ready() && NowNs() - start_ns < kYieldNs) sched_yield();
    return status_.wait_for(limit) == std::future_status::ready;
  }

 private:
  static constexpr int64_t kYieldNs = 100 * 1000;

  const std::shared_ptr<std::promise<Status>> ended_ = std::make_shared<std::promise<Status>>();
  const std::shared_future<Status> status_ = ended_->get_future().share();
};

// The running session of a process set; raises ValueError when there is none, with Horovod's text when not
// initialised.
inline std::shared_ptr<Session> SessionOrThrow(int process_set = 0) {
  Result<std::shared_ptr<Session>> session = SessionOf(process_set);
  if (!session.ok()) throw nanobind::value_error(session.status().message().c_str());
  return *session;
}

}  // namespace smddp
