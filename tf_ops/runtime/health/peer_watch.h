// Detects lost ranks of the session: the heartbeats of runtime/health/heartbeat.h, read from shared memory inside the
// node and from messages between nodes.
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
  // Shows this node that this rank is alive; returns the ranks to which a heartbeat is due.
  std::vector<int> BeatsDue(int64_t now_ns);
  // Call it after BeatsDue. An error: ranks are lost; it ends with `under_way`.
  Status FindLost(int64_t now_ns, const std::function<std::string()>& under_way);
  // Replaces an error of the transport by one that names the lost ranks, when there are any: MPI may detect a death
  // before this class does.
  Status Explained(const Status& error, const std::string& under_way) const;

 private:
  FabricParts& parts_;
  Heartbeat heartbeat_;
};

}  // namespace smddp
