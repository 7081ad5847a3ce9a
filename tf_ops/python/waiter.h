// Waiting for a request from a Python thread.
#pragma once

#include <nanobind/nanobind.h>
#include <sched.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>

#include "core/clock.h"
#include "python/errors.h"
#include "runtime/api/session.h"

namespace smddp {

// Every request is answered, at the latest when its session ends (runtime/api/session.h).
class Waiter {
 public:
  DoneCallback callback() {
    return [state = state_](const Status& status) {
      std::lock_guard<std::mutex> lock(state->mutex);
      state->done = true;
      state->status = status;
      state->changed.notify_one();
    };
  }
  // Without the GIL. Polls for a moment before it sleeps: waking a thread takes as long as a small request
  // (runtime/engine/loop_pace.h). `request` makes the request, where that was not done before.
  Status Wait(const std::function<void()>& request = [] {}) {
    nanobind::gil_scoped_release release;
    request();
    for (const int64_t start_ns = NowNs(); !state_->done.load() && NowNs() - start_ns < kYieldNs;) sched_yield();
    std::unique_lock<std::mutex> lock(state_->mutex);
    state_->changed.wait(lock, [this] { return state_->done.load(); });
    return state_->status;
  }
  bool answered() const { return state_->done; }

 private:
  static constexpr int64_t kYieldNs = 100 * 1000;

  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::atomic<bool> done{false};  // written under the lock
    Status status;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

// The running session of a process set; raises ValueError when there is none, with Horovod's text when not
// initialised.
inline std::shared_ptr<Session> SessionOrThrow(int process_set = 0) {
  Result<std::shared_ptr<Session>> session = SessionOf(process_set);
  if (!session.ok()) throw nanobind::value_error(session.status().message().c_str());
  return *session;
}

// Makes a request with make(session, done), without the GIL, and waits for its answer; an error is thrown.
template <class Make>
void MakeAndWait(int process_set, const Make& make) {
  std::shared_ptr<Session> session = SessionOrThrow(process_set);
  Waiter waiter;
  ThrowIfError(waiter.Wait([&] {
    session->Drive([&] { make(*session, waiter.callback()); }, [&] { return waiter.answered(); });
    session.reset();  // it may end before the answer comes
  }));
}

}  // namespace smddp
