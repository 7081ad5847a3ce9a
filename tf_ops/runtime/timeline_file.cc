#include "runtime/timeline_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "core/log.h"
#include "core/plain_file.h"

namespace smddp {
namespace {

constexpr const char kBegin[] = "[";
constexpr const char kEnd[] = "\n]\n";
constexpr int64_t kMostInMemory = 32 << 20;

}  // namespace

Result<std::unique_ptr<TimelineFile>> TimelineFile::Create(const std::string& path, unsigned mode) {
  std::string why;
  const int file = OpenPlainFile(path, O_RDWR, mode, &why);
  if (file < 0) {
    return Status(Code::kInvalidArgument, "The timeline '" + path + "' cannot be written: " + why +
                                              ". Expected: a plain file in a folder that exists.");
  }
  std::unique_ptr<TimelineFile> created(new TimelineFile(path, file));
  if (ftruncate(file, 0) == 0 && created->Write(std::string(kBegin) + kEnd, 0)) {
    created->end_ = sizeof(kBegin) - 1;
    return Result<std::unique_ptr<TimelineFile>>(std::move(created));
  }
  return Status(Code::kInvalidArgument, "The timeline '" + path + "' cannot be written. Is the disk full?");
}

std::unique_ptr<TimelineFile> TimelineFile::InMemory() {
  std::unique_ptr<TimelineFile> created(new TimelineFile("", -1));
  created->Write(std::string(kBegin) + kEnd, 0);
  created->end_ = sizeof(kBegin) - 1;
  return created;
}

TimelineFile::~TimelineFile() {
  if (file_ >= 0) close(file_);
}

bool TimelineFile::Write(const std::string& text, int64_t at) {
  if (path_.empty()) {
    if (at + static_cast<int64_t>(text.size()) > kMostInMemory) return false;
    memory_.resize(at);
    memory_ += text;
    return true;
  }
  return file_ >= 0 && pwrite(file_, text.data(), text.size(), at) == static_cast<ssize_t>(text.size());
}

bool TimelineFile::Append(const std::string& lines) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (failed_) return false;
  std::string text;
  for (size_t at = 0; at < lines.size();) {
    const size_t end = std::min(lines.find('\n', at), lines.size());
    if (end > at) {
      text += end_ + text.size() == sizeof(kBegin) - 1 ? "\n" : ",\n";
      text.append(lines, at, end - at);
    }
    at = end + 1;
  }
  if (text.empty()) return true;
  if (Write(text + kEnd, end_)) {
    end_ += static_cast<int64_t>(text.size());
    return true;
  }
  failed_ = true;
  if (!path_.empty()) {
    Log(LogLevel::kWarning, "Writing the timeline '" + path_ + "' failed; it ends here. Is the disk full?");
    // The space of what is there is not given back, so that it can be closed.
    if (!Write(kEnd, end_) || ftruncate(file_, end_ + sizeof(kEnd) - 1) != 0) {
      Log(LogLevel::kWarning, "The timeline '" + path_ + "' is left open.");
    }
  }
  return false;
}

std::string TimelineFile::Read(int64_t* offset, size_t limit) {
  std::lock_guard<std::mutex> lock(mutex_);
  const int64_t begin = std::max<int64_t>(*offset, sizeof(kBegin) - 1);
  const size_t wanted = static_cast<size_t>(std::max<int64_t>(0, std::min<int64_t>(limit, end_ - begin)));
  std::string text(wanted, '\0');
  if (path_.empty()) {
    text.assign(memory_, begin, wanted);
  } else if (pread(file_, text.data(), wanted, begin) != static_cast<ssize_t>(wanted)) {
    return "";
  }
  const bool at_end = begin + static_cast<int64_t>(wanted) == end_;
  if (!at_end) text.resize(text.rfind('\n') + 1);  // no line is longer than any sensible limit
  *offset = begin + static_cast<int64_t>(text.size());
  std::string lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    size_t stop = end;
    if (stop > at && text[stop - 1] == ',') --stop;
    if (stop > at) lines += text.substr(at, stop - at) + "\n";
    at = end + 1;
  }
  return lines;
}

void TimelineFile::Remove() {
  std::lock_guard<std::mutex> lock(mutex_);
  failed_ = true;
  if (!path_.empty()) unlink(path_.c_str());
}

}  // namespace smddp
