// A session is an engine and its components. Each component has one concern: it handles the control messages of its
// types, is called by the engine's loop, and sends to other ranks through the bus. A component knows the components
// it builds on by their classes, and the engine only by this header.
//
// Threads: the engine's, for every method of both classes.
#pragma once

#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "runtime/control/running_tasks.h"
#include "runtime/control/trace.h"
#include "topology/topology.h"

namespace smddp {

// All ranks of the session but this one.
inline std::set<int> OtherRanks(const Topology& topology) {
  const std::vector<int> ranks = topology.all().world_ranks();
  std::set<int> others(ranks.begin(), ranks.end());
  others.erase(topology.rank());
  return others;
}

// "0, 2": ranks of the session, by the numbers that users know.
template <class Ranks>
std::string NumbersOf(const Topology& topology, const Ranks& ranks) {
  std::string numbers;
  for (const int rank : ranks) numbers += (numbers.empty() ? "" : ", ") + std::to_string(topology.global_rank(rank));
  return numbers;
}

// The error that ends a session when an engine of this version cannot have sent a message.
inline Status Refused(const Topology& topology, int from, const char* what = "sent an invalid control message") {
  return OtherVersion("Rank ", topology.global_rank(from), " ", what);
}

// The engine's services for components.
class ControlBus {
 public:
  virtual ~ControlBus() = default;
  virtual const Topology& topology() const = 0;
  virtual Trace& trace() = 0;
  // OK, or why the session has failed. Then no request may begin any more.
  virtual const Status& failure() const = 0;
  // When the oldest request under way was made (Component::kNever when there is none), and when a request last made
  // progress.
  virtual int64_t OldestNs() const = 0;
  virtual int64_t last_worked_ns() const = 0;
  // Dropped when rank `to` has ended its session.
  virtual void Post(int to, std::string message) = 0;
  void PostToOthers(const std::string& message) {
    for (const int rank : OtherRanks(topology())) Post(rank, message);
  }
  virtual void Run(RunningTask task) = 0;
  // Ends the session with an error: all requests, current and future. The first error counts.
  void Fail(const Status& why) { End(why, /*tell_others=*/true); }
  // The same, when the other ranks have the error already.
  void FailHere(const Status& why) { End(why, /*tell_others=*/false); }

 private:
  virtual void End(const Status& why, bool tell_others) = 0;
};

class Component {
 public:
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  virtual ~Component() = default;

  // A message of one of its types. An error ends the session: `from` must not send that (Refused).
  virtual Status OnMessage(int from, std::string_view /*message*/) {
    return Status(Reason::kInternal, "A message of rank ", from, " has an unknown type.");
  }
  // After every round of the loop; and five times a second while the session has not failed.
  virtual void Step() {}
  virtual void Tick(int64_t /*now_ns*/) {}

  // `rank` has ended its session. Messages that it sent before may still arrive.
  virtual void OnDeparture(int /*rank*/) {}
  // All messages of `rank` have arrived. Called at every tick from then on; `who` is the beginning of the sentence:
  // "Rank 2 has ended ...". An error: something needs that rank, and the session ends.
  virtual Status AfterDeparture(int /*rank*/, const std::string& /*who*/) { return Status::Ok(); }

  // The session has failed: answers every caller with `why`.
  virtual void OnFailure(const Status& /*why*/) {}
  // The session ends, and no task is under way.
  virtual void OnLeave() {}
  // Transfers could not be cancelled: the memory that they refer to must be kept until the process ends.
  virtual void KeepMemory() {}

  // Does it wait for messages of other ranks, so that the engine should poll without pause?
  virtual bool expecting() const { return false; }
  // Does a caller wait for an answer?
  virtual bool waiting() const { return false; }
  // Does it wait for work that does not ring the doorbell?
  virtual bool polls() const { return false; }
  // When the oldest waiting request was made, or kNever.
  virtual int64_t OldestNs() const { return kNever; }
  // Appends the names of what is under way: "allreduce 'loss'".
  virtual void Describe(std::vector<std::string>* /*under_way*/) const {}
};

}  // namespace smddp
