// Which ranks of the session are lost: the heartbeats of runtime/health/heartbeat.h, taken from shared memory inside
// the node and from messages between nodes.
//
// Threads: the engine's.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/status.h"
#include "runtime/bootstrap/fabric_parts.h"
#include "runtime/health/heartbeat.h"

namespace smddp {

class PeerWatch {
 public:
  // `parts` outlives it. `timeout_s`: SMDDP_HEARTBEAT_TIMEOUT.
  PeerWatch(FabricParts& parts, double timeout_s) : parts_(parts), heartbeat_(parts.fabric().topology, timeout_s) {}

  void Heard(int rank, int64_t now_ns) { heartbeat_.Heard(rank, now_ns); }
  void Left(int rank) { heartbeat_.Left(rank); }
  // Shows this node that this rank lives; returns the ranks to which a heartbeat is due.
  std::vector<int> BeatsDue(int64_t now_ns);
  // After BeatsDue. Not OK: ranks are lost. `under_way` ends the sentence about them.
  Status FindLost(int64_t now_ns, const std::function<std::string()>& under_way);
  // An error of the transport: MPI may know of a death before the watch does, and then it is one about those ranks.
  Status Explained(const Status& error, const std::string& under_way) const;

 private:
  FabricParts& parts_;
  Heartbeat heartbeat_;
};

}  // namespace smddp
