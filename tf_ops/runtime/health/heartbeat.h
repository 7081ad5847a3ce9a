// Failure detection from heartbeats. Pure logic: the clock is an argument, and the caller sends the messages.
//
// Inside a node every rank watches every other one. A timestamp in shared memory shows that a rank is alive; the file
// lock that the kernel releases with the process shows that it is dead. Between nodes the speaker of each node, its
// first rank that still reads (departures.h), sends a heartbeat to the speakers of all other nodes, and any message
// from a node shows that the node is alive. So a silent rank is named by its own node, a silent node by the others, and
// the number of messages grows with nodes, not ranks.
//
// Threads: the engine's.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/health/departures.h"
#include "topology/topology.h"

namespace smddp {

// The signs of life of a rank of my node.
struct LifeSigns {
  int64_t beat_ns = 0;  // when it last moved
  bool dead = false;    // its process has ended
};

class Heartbeat {
 public:
  using SignsOf = std::function<LifeSigns(int member)>;
  // A silent rank is found within `timeout_s`; 0: only dead ones are. The others outlive it.
  Heartbeat(const Topology& topology, const Departures& departures, double timeout_s);

  // Call it a few times a second, before the other two. After a long pause between calls this process itself was
  // stopped: the other ranks' deadlines are extended by the pause.
  void Tick(int64_t now_ns);
  void Heard(int rank, int64_t now_ns) { node_heard_ns_[topology_.node_of(rank)] = now_ns; }
  // What the transport says of that speaker, just before a beat is sent to it: Transport::UnansweredNs.
  void Unanswered(int rank, int64_t ns) { unanswered_ns_[topology_.node_of(rank)] = ns; }

  // The ranks to which a beat is due now.
  std::vector<int> Due(int64_t now_ns);
  // A sentence about the lost ranks; nothing when all are alive. `signs_of` returns those of a member of my node.
  std::optional<std::string> FindLost(int64_t now_ns, const SignsOf& signs_of);
  // The sentence about ranks whose processes have ended.
  std::string Died(const std::vector<int>& dead) const;

 private:
  bool Speaks() const { return departures_.ReaderOf(topology_.node_index()) == topology_.rank(); }
  // "No sign of life from rank 2 (host a) for 13.5 s (SMDDP_HEARTBEAT_TIMEOUT): "
  std::string Missed(const char* what, const std::vector<int>& ranks, int64_t ns) const;
  std::optional<std::string> FindDead(const SignsOf& signs_of);
  std::optional<std::string> FindSilentMate(int64_t now_ns, const SignsOf& signs_of) const;
  std::optional<std::string> FindSilentNode(int64_t now_ns) const;

  const Topology& topology_;
  const Departures& departures_;
  const double timeout_s_;
  std::vector<int64_t> node_heard_ns_, unanswered_ns_;  // by node
  std::vector<int> suspects_;                           // lock released at the last check: a goodbye may still arrive
  int64_t ticked_ns_ = 0, forgiven_ns_ = 0, sent_ns_ = 0;
  int64_t spoken_to_since_ns_ = 0;  // heartbeats are sent to speakers only: when this rank was last none
};

}  // namespace smddp
