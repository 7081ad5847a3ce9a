#include "runtime/timeline/timeline.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>

#include "core/clock.h"
#include "core/process/log.h"

namespace smddp {
namespace {

constexpr std::chrono::milliseconds kWriteEvery(100);
constexpr const char kEnd[] = "\n]\n";

// Opens or creates a regular file and does not follow links: the path may be in a folder that others can write to.
// Returns the descriptor, which the caller closes.
Result<int> OpenPlainFile(const std::string& path, mode_t mode) {
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, mode);
  if (file < 0) return Status(Reason::kBadArgument, errno == ELOOP ? "it is a symbolic link" : std::strerror(errno));
  struct stat found = {};
  if (fstat(file, &found) == 0 && S_ISREG(found.st_mode) && found.st_nlink == 1) return file;
  close(file);
  return Status(Reason::kBadArgument, "it is not a plain file, or has a second name");
}

}  // namespace

class Timeline::File {
 public:
  File(std::string path, int file) : path_(std::move(path)), file_(file) {}
  ~File() { close(file_); }

  bool Begin() { return ftruncate(file_, 0) == 0 && Write("["); }

  // `lines`: complete lines, one JSON object each. False when they could not be written.
  bool Append(const std::string& lines) {
    if (failed_) return false;
    std::string text;
    for (size_t at = 0; at < lines.size();) {
      const size_t end = std::min(lines.find('\n', at), lines.size());
      text += end_ + text.size() == 1 ? "\n" : ",\n";
      text.append(lines, at, end - at);
      at = end + 1;
    }
    if (text.empty() || Write(text)) return true;
    failed_ = true;
    Log(LogLevel::kWarning, "Writing the timeline '", path_, "' failed; it ends here. Is the disk full?");
    // The space of the existing end is kept, so that the array can be closed again.
    if (!Write("") || ftruncate(file_, end_ + sizeof(kEnd) - 1) != 0) {
      Log(LogLevel::kWarning, "The timeline '", path_, "' is left open.");
    }
    return false;
  }

 private:
  // Writes at the end of the existing text. The array's end is written after it, and is overwritten by the next text.
  bool Write(const std::string& text) {
    const std::string all = text + kEnd;
    if (pwrite(file_, all.data(), all.size(), end_) != static_cast<ssize_t>(all.size())) return false;
    end_ += static_cast<int64_t>(text.size());
    return true;
  }

  const std::string path_;
  const int file_;
  int64_t end_ = 0;  // of the last line, without its newline
  bool failed_ = false;
};

void Timeline::Record() {
  if (!recording_) trace_.Start();
  recording_ = true;
}

Status Timeline::WriteTo(const std::string& path, unsigned mode, const TimelineStart& start) {
  const Result<int> opened = OpenPlainFile(path, mode);
  auto file = opened.ok() ? std::make_unique<File>(path, *opened) : nullptr;
  if (file == nullptr || !file->Begin()) {
    const std::string why = opened.ok() ? "the disk may be full" : opened.status().message();
    return Status(Reason::kBadArgument, "The timeline '", path, "' cannot be written: ", why,
                  ". Expected: a plain file in a folder that exists.");
  }
  Record();
  stop_ = std::promise<void>();
  writer_ = std::thread([this, start, stop = stop_.get_future(), file = std::move(file)]() mutable {
    WriteLoop(*file, TimelineText(rank_, start), stop);
    file = nullptr;
  });
  return Status::Ok();
}

void Timeline::Stop() {
  if (recording_) trace_.Stop();
  recording_ = false;
  if (!writer_.joinable()) return;
  stop_.set_value();
  writer_.join();
}

void Timeline::WriteLoop(File& file, TimelineText text, const std::future<void>& stop) {
  std::vector<TraceEvent> taken;
  int64_t dropped = 0;
  for (bool last = false; !last;) {
    last = stop.wait_for(kWriteEvery) == std::future_status::ready;
    dropped += trace_.Take(&taken);
    for (const TraceEvent& event : taken) text.Add(event);
    if (!file.Append(text.Take())) dropped += static_cast<int64_t>(taken.size());
  }
  text.Close(NowNs(), dropped);
  file.Append(text.Take());
}

}  // namespace smddp
