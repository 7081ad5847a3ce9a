// What a session reports about itself: uncaught exceptions, counters, its event log and the timeline.
//
// Threads: any. No method waits for another rank, except StopTimeline.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/status.h"

namespace smddp {

enum class TraceWhat : uint8_t {
  kOpAnnounced,  // a request by name
  kOpStart,
  kOpDone,
  kOpFailed,
  kTensorReady,  // a gradient
  kTensorStart,
  kTensorDone,
  kBucketComplete,
  kBucketStart,
  kBucketDone,
  kStageBegin,  // of the reduction of a bucket
  kStageEnd,
  kCycleStart,  // something begins, and nothing was under way
  kPlanOrder,
  kStepGradients,  // the first gradient of a step of a plan
  kStepDone,       // all of its gradients are reduced
};
// "op_announced" of kOpAnnounced, and so on: as Python and the log name them.
const char* NameOf(TraceWhat what);

// One entry of the engine's event log, for the timeline, and for tests and benchmarks that must see when things
// happened.
struct TraceEvent {
  TraceWhat what = TraceWhat::kOpAnnounced;
  std::string name;     // plan key, or the request's name
  int index = 0;        // tensor, bucket or step number, or the value
  int64_t time_ns = 0;  // CLOCK_MONOTONIC
  std::string detail;   // of kOp*: the kind, in capitals; of kTensor*: the tensor's name; of kStage*: the stage
};

// The files of a timeline that has ended, closed: rank 0's, and beside it PATH.rankN.part of these ranks, each on its
// rank's host. An empty path: no timeline has ended.
struct TimelineParts {
  std::string path;
  std::vector<int> ranks;
};

struct SessionStats {
  int64_t planned_buckets = 0;  // reduced so far
  int64_t named_requests = 0;   // finished so far
  // Of gradients of plans so far: the steps, the time during which some were under way, and of that the time during
  // which all gradients of the step had arrived, so that the program waited (communication that is not hidden).
  int64_t steps = 0, reducing_ns = 0, exposed_ns = 0;
  int64_t plans = 0;                                // known now
  int64_t node_bytes_sent = 0;                      // published to ranks of my node
  int64_t node_bytes_referred = 0;                  // of these, what they read in my tensors, uncopied
  int64_t rail_bytes_sent = 0;                      // handed to MPI for ranks of other nodes
  int64_t control_messages = 0, control_bytes = 0;  // sent to other ranks, besides the data of collectives
  int64_t arena_bytes = 0;                          // shared memory this rank owns
  int ended_rank = -1;                              // one that has left at the end of its program
  // The measurements on which the choice of the algorithm between nodes is based; 0 on one node.
  double rail_latency_us = 0, rail_bandwidth_mbps = 0;
};

// The state of uncaught exceptions (SessionDiagnostics::Raise).
struct RaisedState {
  bool others_acknowledged = false;  // all other ranks have printed which rank raised, and print nothing more
  std::string elsewhere;             // the message of another rank that raised; "": none has
  bool shown_elsewhere = false;      // that rank has printed its traceback
};

class SessionDiagnostics {
 public:
  virtual ~SessionDiagnostics() = default;

  // This rank's program ends with an uncaught exception ("ValueError: ..."): the session fails on all ranks, with a
  // message that names this rank. Only the first call counts; see runtime/health/exception_notice.h.
  virtual void Raise(const std::string& exception) = 0;
  // The traceback has been printed: the other ranks may end.
  virtual void TellTracebackPrinted() = 0;
  virtual RaisedState Raised() const = 0;

  virtual SessionStats Stats() const = 0;
  // The algorithm with which an allreduce of this size is summed between nodes: "direct".
  virtual std::string RailAlgorithm(int64_t elements, DType dtype) const = 0;
  virtual void TraceStart() = 0;
  virtual std::vector<TraceEvent> TraceStop() = 0;

  // All ranks write their events, each into its own file, until StopTimeline or the end of the session. Rank 0's
  // calls count; those of other ranks may be omitted. StopTimeline waits, for at most some seconds, until the other
  // ranks have closed their files. It returns the files to merge; on other ranks nothing.
  virtual Status StartTimeline(const std::string& path, bool mark_cycles) = 0;
  virtual TimelineParts StopTimeline() = 0;
};

}  // namespace smddp
