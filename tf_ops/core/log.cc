#include "core/log.h"

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstdio>

namespace smddp {
namespace {

// Process-wide by nature, like stderr itself.
std::atomic<int> g_level{static_cast<int>(LogLevel::kWarning)};
std::atomic<int> g_rank{-1};

const char* NameOf(LogLevel level) {
  constexpr const char* kNames[] = {"trace", "debug", "info", "warning", "error", "off"};
  return kNames[static_cast<int>(level)];
}

}  // namespace

LogLevel LogLevelFromName(const std::string& name, LogLevel fallback) {
  std::string lower = name;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  if (lower == "fatal") return LogLevel::kError;
  for (int i = 0; i <= static_cast<int>(LogLevel::kOff); ++i) {
    if (lower == NameOf(static_cast<LogLevel>(i))) return static_cast<LogLevel>(i);
  }
  return fallback;
}

void SetLog(LogLevel level, int rank) {
  g_level = static_cast<int>(level);
  g_rank = rank;
}

void Log(LogLevel level, const std::string& message) {
  if (static_cast<int>(level) < g_level.load(std::memory_order_relaxed)) return;
  const std::string line =
      "smddp_tf [rank " + std::to_string(g_rank.load()) + "] " + NameOf(level) + ": " + message + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);  // one call, so that lines of several ranks do not mix
}

}  // namespace smddp
