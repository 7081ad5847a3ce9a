// A whole job inside one process, for tests: every rank is a session with an engine thread of its own; ranks of equal
// host share memory, the others talk through a table of mailboxes or over TCP. Everything above the transports is the
// real thing.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/api/session.h"

namespace smddp {

class InprocCluster {
 public:
  virtual ~InprocCluster() = default;
  virtual int size() const = 0;
  virtual Session& session(int rank) = 0;
  // Ends the session of one rank, as at the end of its program.
  virtual void Stop(int rank, bool at_exit = false) = 0;
};

struct ClusterOptions {
  std::vector<std::string> host_of_rank;
  std::vector<int> global_ranks;  // as those of a process set (topology.h); empty: all ranks there are
  int64_t chunk_bytes = 256 << 10;
  int64_t bucket_bytes = 25 << 20;
  int64_t cache_capacity = 1024;
  std::string cpu_isa = "auto";
  std::string gradient_order = "observed";
  std::string rail_algorithm = "auto";
  std::string gpu_stage = "auto";
  bool tcp = false;             // ranks of different hosts send by TCP, over the loopback interface
  bool shared_tensors = false;  // all memory of the process counts as that of every rank's tensors
};

Result<std::unique_ptr<InprocCluster>> StartInprocCluster(const ClusterOptions& options);

}  // namespace smddp
