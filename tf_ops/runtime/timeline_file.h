// A JSON array that grows and can be read at any time: each addition writes the closing bracket too, so that what a
// crashed job leaves is still valid.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "core/status.h"

namespace smddp {

// Threads: any.
class TimelineFile {
 public:
  // Empties a file that is there; never follows a link (core/plain_file.h).
  static Result<std::unique_ptr<TimelineFile>> Create(const std::string& path, unsigned mode);
  // In memory, where a host has no such folder. Bounded: what does not fit is lost.
  static std::unique_ptr<TimelineFile> InMemory();
  ~TimelineFile();

  // `lines`: whole lines, one JSON object each. False when they could not be kept.
  bool Append(const std::string& lines);
  // Whole lines from `*offset` (0 at first) on, at most about `limit` bytes, and moves `*offset` behind them. "" at the
  // end.
  std::string Read(int64_t* offset, size_t limit);
  // Forgets the file and removes it.
  void Remove();

  const std::string& path() const { return path_; }  // "" in memory

 private:
  TimelineFile(std::string path, int file) : path_(std::move(path)), file_(file) {}
  bool Write(const std::string& text, int64_t at);

  const std::string path_;
  std::mutex mutex_;
  int file_;
  std::string memory_;
  int64_t end_ = 0;  // of the last line, without its newline
  bool failed_ = false;
};

}  // namespace smddp
