// Failure detection from heartbeats. Pure logic: the clock is an argument, and the caller sends the messages.
//
// Inside a node every rank watches every other: what shows life is a time in shared memory, what shows death is the
// lock that the kernel drops with a process. Between nodes the first rank of each node that has not left speaks for it:
// it sends a beat to the speakers of all other nodes, and any message from a node shows that it lives. So a rank that
// is silent is named by its own node, a node that is silent by the others, and messages grow with nodes, not ranks.
//
// Threads: the engine's.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "topology/topology.h"

namespace smddp {

// What a rank of my node shows.
struct LifeSigns {
  int64_t beat_ns = 0;  // when it last moved
  bool dead = false;    // its process has ended
};

class Heartbeat {
 public:
  // A silent rank is found within `timeout_s`; 0: only dead ones are. `topology` outlives it.
  Heartbeat(const Topology& topology, double timeout_s);

  // Call it a few times a second, before the other two. When it was not called for long, this process stood still:
  // the others get that time back.
  void Tick(int64_t now_ns);
  void Heard(int rank, int64_t now_ns);
  void Left(int rank) { left_[rank] = true; }

  // The ranks to which a beat is due now.
  std::vector<int> Due(int64_t now_ns);
  // A sentence about those that are lost; nothing when all live. `signs_of` reads those of a member of my node.
  std::optional<std::string> FindLost(int64_t now_ns, const std::function<LifeSigns(int member)>& signs_of);
  // The sentence about ranks whose processes have ended.
  std::string Died(const std::vector<int>& dead) const;

 private:
  int SpeakerOf(int node) const;  // -1: all have left
  std::optional<std::string> FindDead(const std::function<LifeSigns(int member)>& signs_of);
  std::optional<std::string> FindSilentMate(int64_t now_ns, const std::function<LifeSigns(int member)>& signs_of) const;
  std::optional<std::string> FindSilentNode(int64_t now_ns) const;

  const Topology& topology_;
  const double timeout_s_;
  std::vector<bool> left_;              // by rank
  std::vector<int64_t> node_heard_ns_;  // by node
  std::vector<int> suspects_;           // without a lock at the last look: a goodbye may be on its way
  int64_t ticked_ns_ = 0, forgiven_ns_ = 0, sent_ns_ = 0;
};

}  // namespace smddp
