// Waits for other ranks inside MPI, each with a deadline. Used only in this folder.
#pragma once

#include <mpi.h>

#include <future>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core/clock.h"
#include "core/status.h"

namespace smddp {

// Some MPI calls wait for other ranks and cannot be interrupted. While one is under way, this ends the process with a
// message when the deadline passes; mpirun then ends the others.
class StartWatchdog {
 public:
  StartWatchdog(const Deadline& deadline, const char* what);
  ~StartWatchdog();

 private:
  std::promise<void> done_;
  std::thread thread_;
};

// Waits for nonblocking collectives of `comm` without holding a core, and finds out which ranks wait as this one does:
// from half of its time on each tells the others so with an empty message, and answers those that tell it. One thread.
class RollCall {
 public:
  // `what` names the purpose in messages.
  RollCall(MPI_Comm comm, const Deadline& deadline, const char* what);

  // At the deadline the error names the ranks of `comm` that have not come, as far as is known, and MPI is abandoned:
  // they will not come to MPI_Finalize either.
  Status Await(MPI_Request* request);
  // Receives what is still on its way to this rank, so that no later receive on the roll call's communicator, which may
  // be the user's, gets it. Collective, when no rank awaits anything more, over `comm`: the communicator of the roll
  // call or one with the same ranks. A message that another receive of this process has taken is waited for 5 s, also
  // without holding a core.
  Status End(MPI_Comm comm);

 private:
  Status Step();
  // ": missing on rank 1", or "" where that is not known.
  std::string Missing() const;

  const MPI_Comm comm_;
  const Deadline deadline_, half_;
  const char* const what_;
  int rank_ = 0;
  bool ends_ = false;      // nobody is told any more
  std::vector<int> told_;  // by rank: 1 where this one has told it
  std::set<int> waiting_;  // the ranks that have told this one
};

}  // namespace smddp
