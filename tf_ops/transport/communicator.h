// The ranks of a session, from its start to its end: who they are, what they tell each other before the engine runs,
// and the transport between them. Of MPI (mpi/), or of this library (tcp/).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/status.h"
#include "transport/transport.h"

namespace smddp {

// Threads: one at a time.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  // The texts of all ranks, in rank order. Collective.
  virtual Result<std::vector<std::string>> Exchange(const std::string& mine, const Deadline& deadline) = 0;
  // For the engine's thread. The communicator outlives it.
  virtual std::unique_ptr<Transport> NewTransport() = 0;
  // A communicator of some of my ranks, in the order given. Collective over these ranks only, so all of them must know
  // that they call it. `number` is that of the process set, which no other one of this session has or had. `what` names
  // the purpose in messages.
  virtual Result<std::unique_ptr<Communicator>> Subset(const std::vector<int>& ranks, int number, const char* what,
                                                       const Deadline& deadline) const = 0;
  // This communicator's ranks of the members of an MPI_Comm, in its order; none for MPI_COMM_NULL.
  virtual Result<std::vector<int>> RanksOf(const void*) const {
    return Status(Reason::kBadArgument, "This job runs without MPI, so it has no communicators.");
  }
  // Frees it when every message between its ranks has arrived. Collective, after all of them have ended the session
  // that used it. False: some rank did not answer until the deadline, and it is kept.
  virtual Result<bool> Free(const Deadline&) { return true; }
};

}  // namespace smddp
