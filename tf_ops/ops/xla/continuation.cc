#include "ops/xla/continuation.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

namespace smddp::ops::xla_calls {
namespace {

class Worker {
 public:
  Worker() {
    std::thread([this] { Loop(); }).detach();
  }

  void Push(std::function<void()> work) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      work_.push_back(std::move(work));
    }
    woken_.notify_one();
  }

 private:
  [[noreturn]] void Loop() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      woken_.wait(lock, [this] { return !work_.empty(); });
      const std::function<void()> work = std::move(work_.front());
      work_.pop_front();
      lock.unlock();
      work();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable woken_;
  std::deque<std::function<void()>> work_;
};

}  // namespace

void Continue(std::function<void()> work) {
  static auto* const worker = new Worker;  // never destroyed: its thread may be waiting when the process ends
  worker->Push(std::move(work));
}

}  // namespace smddp::ops::xla_calls
