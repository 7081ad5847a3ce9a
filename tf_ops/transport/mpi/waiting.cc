#include "transport/mpi/waiting.h"

#include <unistd.h>

#include <cstdlib>
#include <string>

#include "core/process/log.h"
#include "transport/mpi/mpi_status.h"

namespace smddp {
namespace {

std::string TooLate(const char* what) {
  return std::string("Not every rank reached ") + what +
         " in time (SMDDP_START_TIMEOUT). Check that all ranks call hvd.init() and that their hosts can reach one "
         "another.";
}

}  // namespace

void StartWatchdog::Wait(const Deadline& deadline, const char* what) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (changed_.wait_for(lock, deadline.left(), [this] { return done_; })) return;
  Log(LogLevel::kError, TooLate(what));
  _exit(EXIT_FAILURE);
}

StartWatchdog::~StartWatchdog() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    done_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

Status Await(MPI_Request* request, const Deadline& deadline, const char* what) {
  for (int round = 0;; ++round) {
    int done = 0;
    SMDDP_MPI(MPI_Test(request, &done, MPI_STATUS_IGNORE));
    if (done) return Status::Ok();
    if (deadline.passed()) {
      return Status(Reason::kTimedOut, TooLate(what));
    }
    usleep(round < 1000 ? 50 : 1000);
  }
}

}  // namespace smddp
