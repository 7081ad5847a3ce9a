#include "core/process/log.h"

#include <algorithm>
#include <atomic>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <ctime>

namespace smddp {
namespace {

// Process-wide, like stderr itself.
std::atomic<int> g_level{static_cast<int>(LogLevel::kWarning)};
std::atomic<int> g_rank{-1};
std::atomic<bool> g_with_time{false};

const char* NameOf(LogLevel level) {
  constexpr const char* kNames[] = {"trace", "debug", "info", "warning", "error", "off"};
  return kNames[static_cast<int>(level)];
}

// "2026-11-22 14:11:03.042 "
std::string TimeText() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto since = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count();
  std::tm local = {};
  localtime_r(&seconds, &local);
  char date[32] = {}, text[48] = {};
  std::strftime(date, sizeof(date), "%Y-%m-%d %H:%M:%S", &local);
  std::snprintf(text, sizeof(text), "%s.%03d ", date, static_cast<int>(since % 1000));
  return text;
}

}  // namespace

bool LogLevelFromName(const std::string& name, LogLevel* level) {
  std::string lower = name;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  if (lower == "fatal") lower = NameOf(LogLevel::kError);
  for (int i = 0; i <= static_cast<int>(LogLevel::kOff); ++i) {
    if (lower != NameOf(static_cast<LogLevel>(i))) continue;
    *level = static_cast<LogLevel>(i);
    return true;
  }
  return false;
}

void SetLog(LogLevel level, int rank, bool with_time) {
  g_level = static_cast<int>(level);
  g_rank = rank;
  g_with_time = with_time;
}

bool Logs(LogLevel level) { return static_cast<int>(level) >= g_level.load(std::memory_order_relaxed); }

void LogLine(LogLevel level, const std::string& message) {
  const std::string line =
      Concat(g_with_time ? TimeText() : "", "smddp_tf [rank ", g_rank.load(), "] ", NameOf(level), ": ", message, "\n");
  std::fwrite(line.data(), 1, line.size(), stderr);  // a single call, so that lines of several ranks do not mix
}

}  // namespace smddp
