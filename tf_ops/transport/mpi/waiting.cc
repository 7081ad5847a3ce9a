#include "transport/mpi/waiting.h"

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <set>
#include <string>

#include "core/process/log.h"
#include "transport/mpi/mpi_life.h"
#include "transport/mpi/mpi_status.h"

namespace smddp {
namespace {

std::string TooLate(const char* what, const std::string& missing = "") {
  return std::string("Not every rank reached ") + what + " in time (SMDDP_START_TIMEOUT)" + missing +
         ". Check that all ranks call hvd.init() and that their hosts can reach one another.";
}

// Which ranks wait as this one does: from half of its time on each tells the others so, and answers those that tell it.
class RollCall {
 public:
  RollCall(MPI_Comm comm, const Deadline& deadline)
      : comm_(comm), half_(Deadline::After(std::chrono::duration<double>(deadline.left()).count() / 2)) {
    MPI_Comm_rank(comm, &rank_);
    MPI_Comm_size(comm, &size_);
  }

  Status Step() {
    for (int came = 1; came != 0;) {
      MPI_Status status;
      SMDDP_MPI(MPI_Iprobe(MPI_ANY_SOURCE, kTag, comm_, &came, &status));
      if (!came) break;
      SMDDP_MPI(MPI_Recv(nullptr, 0, MPI_BYTE, status.MPI_SOURCE, kTag, comm_, MPI_STATUS_IGNORE));
      waiting_.insert(status.MPI_SOURCE);
      SMDDP_RETURN_IF_ERROR(Tell(status.MPI_SOURCE));
    }
    for (int rank = 0; half_.passed() && rank < size_; ++rank) SMDDP_RETURN_IF_ERROR(Tell(rank));
    return Status::Ok();
  }

  // ": rank 1 did not come", or "" where that is not known.
  std::string Missing() const {
    std::string ranks;
    for (int rank = 0; rank < size_; ++rank) {
      if (rank != rank_ && waiting_.count(rank) == 0) ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
    }
    return ranks.empty() ? "" : ": missing on rank " + ranks;
  }

 private:
  static constexpr int kTag = 7772;

  Status Tell(int rank) {
    if (rank == rank_ || !told_.insert(rank).second) return Status::Ok();
    MPI_Request request;
    SMDDP_MPI(MPI_Isend(nullptr, 0, MPI_BYTE, rank, kTag, comm_, &request));
    SMDDP_MPI(MPI_Request_free(&request));
    return Status::Ok();
  }

  const MPI_Comm comm_;
  const Deadline half_;
  int rank_ = 0, size_ = 0;
  std::set<int> told_, waiting_;
};

constexpr int kBusyRounds = 1000;

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

Status Await(MPI_Request* request, MPI_Comm comm, const Deadline& deadline, const char* what) {
  RollCall roll_call(comm, deadline);
  for (int round = 0;; ++round) {
    int done = 0;
    SMDDP_MPI(MPI_Test(request, &done, MPI_STATUS_IGNORE));
    if (done) return Status::Ok();
    if (round >= kBusyRounds) SMDDP_RETURN_IF_ERROR(roll_call.Step());
    if (deadline.passed()) {
      AbandonMpi();
      return Status(Reason::kTimedOut, TooLate(what, roll_call.Missing()));
    }
    usleep(round < kBusyRounds ? 50 : 1000);
  }
}

}  // namespace smddp
