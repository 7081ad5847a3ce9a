#include "runtime/health/stack_dump.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <mutex>

namespace smddp {
namespace {

constexpr size_t kMaxBytes = 64 << 10;

// Process-wide, like the signal handler itself.
std::mutex g_mutex;
int g_signal = 0, g_file = -1;

}  // namespace

void SetStackDump(int signal, int file) {
  std::lock_guard<std::mutex> lock(g_mutex);
  g_signal = signal;
  g_file = file;
}

std::string DumpStacks() {
  std::lock_guard<std::mutex> lock(g_mutex);
  if (g_file < 0 || ftruncate(g_file, 0) != 0 || lseek(g_file, 0, SEEK_SET) != 0) return "";
  if (pthread_kill(pthread_self(), g_signal) != 0) return "";  // the handler runs before this returns
  std::string text(kMaxBytes, '\0');
  const ssize_t bytes = pread(g_file, text.data(), text.size(), 0);
  text.resize(bytes > 0 ? static_cast<size_t>(bytes) : 0);
  return text;
}

}  // namespace smddp
