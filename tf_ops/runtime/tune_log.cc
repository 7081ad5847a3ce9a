#include "runtime/tune_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>

#include "collectives/algorithm.h"
#include "core/log.h"
#include "core/plain_file.h"

namespace smddp {
namespace {

constexpr const char* kHeader =
    "time,plan,trial,phase,bucket_bytes,chunk_bytes,chunks_in_flight,algorithm,median_us,spread_us,chosen\n";

std::string Now() {
  const std::time_t now = std::time(nullptr);
  std::tm utc = {};
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

std::string Microseconds(double us) {
  char text[40];
  std::snprintf(text, sizeof(text), "%.1f", us);
  return text;
}

}  // namespace

TuneLog::TuneLog(const std::string& path) : path_(path) {
  if (path.empty()) return;
  std::string why;
  file_ = OpenPlainFile(path, O_WRONLY | O_APPEND, 0644, &why);
  if (file_ < 0) {
    Log(LogLevel::kWarning, "SMDDP_AUTOTUNE_LOG: cannot write '" + path + "': " + why + ". Tuning goes on without it.");
    return;
  }
  struct stat found = {};
  if (fstat(file_, &found) == 0 && found.st_size == 0) Write(kHeader);
}

TuneLog::~TuneLog() {
  if (file_ >= 0) close(file_);
}

void TuneLog::Add(const TuneRow& row) {
  const TuneSettings& with = row.settings;
  const std::string algorithm = with.algorithm == kAutoAlgorithm ? "auto" : Algorithms()[with.algorithm]->info().name;
  Write(Now() + "," + Quoted(row.plan) + "," + std::to_string(row.trial) + "," + NameOf(row.phase) + "," +
        std::to_string(with.bucket_bytes) + "," + std::to_string(with.chunk_bytes) + "," +
        std::to_string(with.chunks_in_flight) + "," + algorithm + "," + Microseconds(row.steps.median_us) + "," +
        Microseconds(row.steps.spread_us) + "," + (row.chosen ? "1" : "0") + "\n");
}

void TuneLog::Write(const std::string& text) {
  if (file_ < 0) return;
  const ssize_t written = write(file_, text.data(), text.size());
  if (written == static_cast<ssize_t>(text.size())) return;
  Log(LogLevel::kWarning, "SMDDP_AUTOTUNE_LOG: writing to '" + path_ +
                              "' failed: " + (written < 0 ? std::strerror(errno) : "the disk is full") +
                              ". Tuning goes on without it.");
  close(file_);
  file_ = -1;
}

}  // namespace smddp
