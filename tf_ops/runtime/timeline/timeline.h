// One rank's timeline: takes events away from the engine's event log and writes them as Chrome trace events, on a
// thread of its own so that the engine never waits for a disk.
//
// The file is a JSON array that can be read at any time: each addition writes the closing bracket too, so that what a
// crashed job leaves is valid. When it cannot be written on (the disk is full) it ends there, with a warning.
//
// Threads: the engine's, but for the one it owns.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "core/status.h"
#include "runtime/control/trace.h"
#include "runtime/timeline/timeline_text.h"

namespace smddp {

class Timeline {
 public:
  Timeline(Trace& trace, int rank) : trace_(trace), rank_(rank) {}
  ~Timeline() { Stop(); }

  // From now on what happens is kept, in bounded memory until there is a file.
  void Record();
  // Records too, and writes what has been recorded and what comes into a file, which is emptied if it is there. Never
  // follows a link (core/process/plain_file.h).
  Status WriteTo(const std::string& path, unsigned mode, const TimelineStart& start);
  // Ends recording, writes what has been recorded, ends what is open, and closes the file.
  void Stop();

 private:
  class File;
  void WriteLoop(File& file, TimelineText text);

  Trace& trace_;
  const int rank_;
  bool recording_ = false;
  std::thread writer_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;  // under the mutex
};

}  // namespace smddp
