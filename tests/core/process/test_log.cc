#include <unistd.h>

#include <cstdio>
#include <regex>

#include "core/process/log.h"
#include "native/testing.h"

namespace smddp {
namespace {

// What `body` writes to stderr.
template <class Body>
std::string Written(Body&& body) {
  std::FILE* file = std::tmpfile();
  REQUIRE(file != nullptr);
  std::fflush(stderr);
  const int before = dup(STDERR_FILENO);
  dup2(fileno(file), STDERR_FILENO);
  body();
  std::fflush(stderr);
  dup2(before, STDERR_FILENO);
  close(before);
  std::rewind(file);
  char text[4096] = {};
  const size_t length = std::fread(text, 1, sizeof(text), file);
  std::fclose(file);
  return std::string(text, length);
}

constexpr LogLevel kLevels[] = {LogLevel::kTrace, LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarning,
                                LogLevel::kError};

TEST_CASE("names of log levels, in any case") {
  const std::pair<const char*, LogLevel> names[] = {{"trace", LogLevel::kTrace}, {"DEBUG", LogLevel::kDebug},
                                                    {"Info", LogLevel::kInfo},   {"warning", LogLevel::kWarning},
                                                    {"error", LogLevel::kError}, {"fatal", LogLevel::kError},
                                                    {"OFF", LogLevel::kOff}};
  for (const auto& [name, level] : names) {
    LogLevel found = LogLevel::kTrace;
    CHECK(LogLevelFromName(name, &found));
    CHECK(found == level);
  }
  LogLevel kept = LogLevel::kInfo;
  CHECK_FALSE(LogLevelFromName("loud", &kept));
  CHECK_FALSE(LogLevelFromName("", &kept));
  CHECK(kept == LogLevel::kInfo);
}

TEST_CASE("lines of a level and above are printed, with the rank") {
  for (const LogLevel least : kLevels) {
    SetLog(least, 12);
    for (const LogLevel level : kLevels) {
      CHECK(Logs(level) == (level >= least));
      const std::string text = Written([level] { Log(level, "Something."); });
      CHECK(text.empty() == (level < least));
      if (level == LogLevel::kWarning && level >= least) CHECK(text == "smddp_tf [rank 12] warning: Something.\n");
    }
  }
  SetLog(LogLevel::kOff, 0);
  CHECK_FALSE(Logs(LogLevel::kError));
  SetLog(LogLevel::kWarning, -1);
}

TEST_CASE("lines begin with the time where that is asked for") {
  SetLog(LogLevel::kInfo, 3, true);
  const std::string text = Written([] { Log(LogLevel::kInfo, "Now."); });
  SetLog(LogLevel::kWarning, -1);
  CAPTURE(text);
  const std::regex expected(R"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} smddp_tf \[rank 3\] info: Now\.\n)");
  CHECK(std::regex_match(text, expected));
}

}  // namespace
}  // namespace smddp
