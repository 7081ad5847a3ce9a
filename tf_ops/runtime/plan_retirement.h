// Gives back the numbers and the memory of plans that a program has stopped using, as of models it has thrown away.
//
// Rank 0 numbers plans. When more than kMaxIdlePlans have numbers, it asks all ranks about the one that it has used
// least recently, if that was a while ago. A rank on which nothing of the plan is under way answers how many steps of
// it have begun there, and from then on keeps what comes for it until rank 0 has decided. When all ranks answer alike,
// no message of the plan is on its way: all forget it, and its number is free. A rank that uses it again announces it
// anew.
//
// Threads: the engine's.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "runtime/coordinator.h"
#include "runtime/plan_table.h"
#include "topology/topology.h"

namespace smddp {

class PlanRetirement {
 public:
  using Post = std::function<void(int to, std::string message)>;
  // Hands over what was kept for a plan once more.
  using Resume = std::function<void(PlanTable::Kept kept)>;
  // All outlive it.
  PlanRetirement(const Topology& topology, PlanTable& plans, Coordinator& coordinator, Post post, Resume resume)
      : topology_(topology),
        plans_(plans),
        coordinator_(coordinator),
        post_(std::move(post)),
        resume_(std::move(resume)) {}

  static constexpr size_t kMaxIdlePlans = 256;

  // Rank 0: asks about a plan when there are too many. `quiet`: no rank has called hvd.join, as far as this one knows.
  void Tick(bool quiet);
  // False: not well formed, or not from whom it should be.
  bool OnMessage(int from, std::string_view message, bool quiet);
  // `rank` has left: it answers and decides nothing any more.
  void OnDeparture(int rank);

 private:
  void OnAnswer(bool idle, int64_t steps);
  void Decide(bool forget);
  void End(int number, bool forget);
  void PostToOthers(const std::string& message);

  const Topology& topology_;
  PlanTable& plans_;
  Coordinator& coordinator_;
  const Post post_;
  const Resume resume_;
  int asked_ = -1;        // rank 0: the number of the plan it has asked about; -1: none
  int kept_ = -1;         // the one for which this rank keeps what comes; -1: none
  int answers_ = 0;       // rank 0: from others
  bool alike_ = false;    // rank 0: so far
  int64_t steps_ = 0;     // rank 0: begun here
  bool refused_ = false;  // rank 0: since the last new plan
  size_t numbers_ = 0;    // rank 0: in use when it asked last
};

}  // namespace smddp
