// One rank's timeline: takes the engine's diary away and writes it as Chrome trace events, on a thread of its own so
// that the engine never waits for a disk.
//
// Threads: the engine's, but for the one it owns.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "runtime/timeline_file.h"
#include "runtime/timeline_text.h"
#include "runtime/trace.h"

namespace smddp {

class Timeline {
 public:
  Timeline(Trace& trace, int rank) : trace_(trace), rank_(rank) {}
  ~Timeline() { Stop(); }

  // From now on what happens is kept, in bounded memory until there is a file.
  void Record();
  // Writes what has been recorded and what comes into `file`. `zero_ns`: on this rank's clock, what is shown as 0.
  void WriteTo(std::unique_ptr<TimelineFile> file, int64_t zero_ns, bool mark_cycles);
  // Ends recording, and what is open in the file. The file stays, until Close.
  void Stop();
  void Close() { file_ = nullptr; }

  bool recording() const { return recording_; }
  TimelineFile* file() { return file_.get(); }

 private:
  void WriteLoop();
  void WriteOnce(TimelineText* text);

  Trace& trace_;
  const int rank_;
  bool recording_ = false;
  std::unique_ptr<TimelineFile> file_;
  int64_t zero_ns_ = 0;
  bool mark_cycles_ = false;
  std::thread writer_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;          // under the mutex
  int64_t dropped_ = 0;            // the writer's
  std::vector<TraceEvent> taken_;  // the writer's
};

}  // namespace smddp
