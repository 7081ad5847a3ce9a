// From the engine's event log to Chrome's trace events, which chrome://tracing and Perfetto show. Pure: no clock, no
// file.
//
// A rank is a process. Its tracks ("threads") and the activities on each:
//
//   training steps      STEP around COMPUTATION, until its first gradient is ready, then GRADIENTS
//   a request's name    NEGOTIATE_ALLREDUCE, then ALLREDUCE around MPI_ALLREDUCE (and so on for the other
//                       collectives)
//   a gradient          ALLREDUCE around WAIT_FOR_OTHER_TENSOR_DATA, MPI_ALLREDUCE
//   a bucket            ALLREDUCE around QUEUE, MPI_ALLREDUCE
//   a bucket's stages   NODE_REDUCE_SCATTER, RAIL_ALLREDUCE, NODE_ALLGATHER: from the begin of the first chunk to the
//                       end of the last one, each on its own track because they overlap
//
// Names are Horovod's where it has one. When the same activity is under way twice, the second one has another track,
// so begin and end always nest.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "runtime/api/session.h"

namespace smddp {

struct TimelineStart {
  int64_t zero_ns = 0;   // on this rank's CLOCK_MONOTONIC: the origin of the timeline, also used for earlier events
  int64_t epoch_ns = 0;  // the same moment on rank 0's CLOCK_REALTIME; identifies the timeline
  bool mark_cycles = false;
  std::string host;  // this rank's
};

class TimelineText {
 public:
  TimelineText(int rank, const TimelineStart& start);
  void Add(const TraceEvent& event);
  // Ends all open activities, and writes how many events are missing.
  void Close(int64_t time_ns, int64_t dropped);
  // The output of the calls so far: complete lines, one JSON object each.
  std::string Take() { return std::exchange(text_, ""); }

 private:
  // Something under way.
  struct Activity {
    int thread = 0;
    bool running = false;           // it waits before
    std::vector<std::string> open;  // outermost first
  };
  struct Track {
    std::string name;
    std::vector<int> threads;
    std::deque<Activity> activities;  // oldest first
  };

  Track* TrackFor(const std::string& key, const std::string& name);
  // A new activity in the track. Null when too many are under way.
  Activity* Start(Track* track);
  void Begin(Activity* activity, const std::string& name, int64_t time_ns);
  void End(Activity* activity, int64_t time_ns);
  // The oldest activity that waits, or that runs; or the end.
  static std::deque<Activity>::iterator Find(Track* track, bool running);
  // Begins to wait.
  void Wait(Track* track, const std::vector<std::string>& names, int64_t time_ns);
  // The oldest waiting activity runs: its innermost part ends and `inner` begins. When there is none (it began before
  // the timeline) a new one begins, with `outer` around it.
  void Run(Track* track, const std::string& outer, const std::string& inner, int64_t time_ns);
  void Finish(Track* track, bool running, int64_t time_ns);
  void Meta(int thread, const std::string& name, const std::string& value);
  void Line(const std::string& name, char phase, int thread, int64_t time_ns, const std::string& more = "");

  const int rank_;
  const TimelineStart start_;
  std::string text_;
  std::map<std::string, Track> tracks_;
  int threads_ = 0;
};

}  // namespace smddp
