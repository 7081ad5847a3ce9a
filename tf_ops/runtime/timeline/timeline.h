// One rank's timeline: takes events from the engine's event log and writes them as Chrome trace events, on its own
// thread, so that the engine never waits for a disk.
//
// The file is a JSON array that can be read at any time: each write includes the closing bracket, so that the file of
// a crashed job is valid. When writing fails (the disk is full) the timeline ends there, with a warning.
//
// Threads: the engine's, except for its own thread.
#pragma once

#include <future>
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

  // Events from now on are kept, in bounded memory until there is a file.
  void Record();
  // Records too, and writes recorded and future events into a file, which is truncated if it exists. Does not follow
  // links.
  Status WriteTo(const std::string& path, unsigned mode, const TimelineStart& start);
  // Ends recording, writes the recorded events, ends open activities, and closes the file.
  void Stop();

 private:
  class File;
  void WriteLoop(File& file, TimelineText text, const std::future<void>& stop);

  Trace& trace_;
  const int rank_;
  bool recording_ = false;
  std::thread writer_;
  std::promise<void> stop_;  // of that thread
};

}  // namespace smddp
