// Waits for other ranks inside MPI, each with a deadline. Used only in this folder.
#pragma once

#include <mpi.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "core/clock.h"
#include "core/status.h"

namespace smddp {

// Some MPI calls wait for other ranks and cannot be interrupted. While one is under way, this ends the process with a
// message when the deadline passes; mpirun then ends the others.
class StartWatchdog {
 public:
  StartWatchdog(const Deadline& deadline, const char* what)
      : thread_([this, deadline, what] { Wait(deadline, what); }) {}
  ~StartWatchdog();

 private:
  void Wait(const Deadline& deadline, const char* what);

  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::thread thread_;  // last: it uses the others
};

// Waits for a nonblocking collective of `comm` without holding a core. At the deadline the error names the ranks of
// `comm` that have not come, as far as is known, and MPI is abandoned: they will not come to MPI_Finalize either.
Status Await(MPI_Request* request, MPI_Comm comm, const Deadline& deadline, const char* what);

}  // namespace smddp
