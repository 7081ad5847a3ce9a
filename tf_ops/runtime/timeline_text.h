// From the engine's diary to Chrome's trace events, which chrome://tracing and Perfetto show. Pure: no clock, no file.
//
// A rank is a process. Its lanes ("threads"), each with the activities that follow one another there:
//
//   a request's name    NEGOTIATE_ALLREDUCE, then ALLREDUCE around MPI_ALLREDUCE (and so on for the other collectives)
//   a gradient          ALLREDUCE around WAIT_FOR_OTHER_TENSOR_DATA, MPI_ALLREDUCE
//   a bucket            ALLREDUCE around QUEUE, MPI_ALLREDUCE
//   a bucket's stages   NODE_REDUCE_SCATTER, RAIL_ALLREDUCE, NODE_ALLGATHER: from the first chunk's begin to the last's
//                       end, each a lane of its own because they overlap
//
// Names are Horovod's where it has one. What is under way twice has a second lane, so begin and end always nest.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "runtime/session.h"

namespace smddp {

class TimelineText {
 public:
  // `zero_ns`: what rank 0 calls 0, on this rank's clock. Whatever came before is shown at 0.
  TimelineText(int rank, int64_t zero_ns, bool mark_cycles)
      : rank_(rank), zero_ns_(zero_ns), mark_cycles_(mark_cycles) {}

  // All return whole lines, one JSON object each, possibly none.
  std::string Header(const std::string& host, int64_t epoch_us);
  std::string Add(const TraceEvent& event);
  std::string Dropped(int64_t events, int64_t time_ns) const;
  // Ends everything that is open.
  std::string Close(int64_t time_ns);

 private:
  // Something under way: the activities that are open, outermost first.
  struct Activity {
    int track = 0;  // which of the lane's
    int phase = 0;
    std::vector<std::string> open;
  };
  struct Lane {
    std::string name;
    std::vector<int> threads;  // by track
    std::vector<bool> busy;
    std::deque<Activity> activities;  // oldest first
  };

  Lane* LaneFor(const std::string& key, const std::string& name);
  Activity* Start(Lane* lane, std::string* text);
  void Begin(Lane* lane, Activity* activity, const std::string& name, int64_t time_ns, std::string* text) const;
  void End(const Lane& lane, Activity* activity, int64_t time_ns, std::string* text) const;
  // The oldest activity in `phase` goes one further: its innermost part ends and `next` begins. When there is none (it
  // began before the timeline) one begins, with `outer` around it.
  void Advance(Lane* lane, int phase, const std::string& outer, const std::string& next, int64_t time_ns,
               std::string* text);
  void Finish(Lane* lane, int phase, int64_t time_ns, std::string* text);
  std::string Line(const std::string& name, char phase, int thread, int64_t time_ns, const char* more = "") const;

  const int rank_;
  const int64_t zero_ns_;
  const bool mark_cycles_;
  std::map<std::string, Lane> lanes_;
  int threads_ = 0;
};

// As a JSON string, with its quotes. Long texts are cut; what is not UTF-8 is replaced.
std::string JsonText(const std::string& text);

}  // namespace smddp
