// One line to stderr per message, with the rank in front: "smddp_tf [rank 2] warning: ...". Threads: any. The format
// is set once, when a session starts.
#pragma once

#include <string>

#include "core/text.h"

namespace smddp {

enum class LogLevel { kTrace, kDebug, kInfo, kWarning, kError, kOff };

// Accepts trace, debug, info, warning, error, fatal (Horovod's) and off, in any case. False: none of these.
bool LogLevelFromName(const std::string& name, LogLevel* level);
// `with_time`: lines begin with the date and the time of this host.
void SetLog(LogLevel level, int rank, bool with_time = false);
// Would Log print it? For messages that are expensive to format.
bool Logs(LogLevel level);
void LogLine(LogLevel level, const std::string& message);
// `message`: parts of a text (core/text.h).
template <class... Parts>
void Log(LogLevel level, const Parts&... message) {
  if (Logs(level)) LogLine(level, Concat(message...));
}

}  // namespace smddp
