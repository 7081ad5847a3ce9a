// One line to stderr per message, with the rank in front: "smddp_tf [rank 2] warning: ...".
// Threads: any. The level and the rank are set once, when a session starts.
#pragma once

#include <string>

namespace smddp {

enum class LogLevel { kTrace, kDebug, kInfo, kWarning, kError, kOff };

// Accepts trace, debug, info, warning, error, fatal, off (any case); anything else is `fallback`.
LogLevel LogLevelFromName(const std::string& name, LogLevel fallback);
void SetLog(LogLevel level, int rank);
void Log(LogLevel level, const std::string& message);

}  // namespace smddp
