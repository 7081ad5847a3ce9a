#include "core/process/forked.h"

#include <pthread.h>

#include <atomic>

namespace smddp {
namespace {

std::atomic<bool> g_is_fork{false};

}  // namespace

void WatchForks() {
  [[maybe_unused]] static const int registered = pthread_atfork(nullptr, nullptr, [] { g_is_fork = true; });
}

bool IsFork() { return g_is_fork; }

}  // namespace smddp
