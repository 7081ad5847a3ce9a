#include "transport/mpi/waiting.h"

#include <unistd.h>

#include <cstdlib>
#include <memory>

#include "core/process/log.h"
#include "transport/mpi/mpi_life.h"

namespace smddp {
namespace {

std::string TooLate(const char* what, const std::string& missing = "") {
  return std::string("Not every rank reached ") + what + " in time (SMDDP_START_TIMEOUT)" + missing +
         ". Check that all ranks call hvd.init() and that their hosts can reach one another.";
}

constexpr int kTag = 7772, kQuickRounds = 1000;
constexpr double kArrivalSeconds = 5.0;

// Between two looks at what MPI has; the first rounds are quick.
void Pause(int round) { usleep(round < kQuickRounds ? 50 : 1000); }

}  // namespace

StartWatchdog::StartWatchdog(const Deadline& deadline, const char* what)
    : thread_([deadline, what, done = done_.get_future()] {
        if (done.wait_for(deadline.left()) == std::future_status::ready) return;
        Log(LogLevel::kError, TooLate(what));
        _exit(EXIT_FAILURE);
      }) {}

StartWatchdog::~StartWatchdog() {
  done_.set_value();
  thread_.join();
}

RollCall::RollCall(MPI_Comm comm, const Deadline& deadline, const char* what)
    : comm_(comm), deadline_(deadline), half_(Deadline::After(deadline.left().count() / 2e9)), what_(what) {
  int size = 0;
  MPI_Comm_rank(comm, &rank_);
  MPI_Comm_size(comm, &size);
  told_.resize(size);
}

Status RollCall::Await(MPI_Request* request) {
  for (int round = 0;; ++round) {
    int done = 0;
    SMDDP_MPI(MPI_Test(request, &done, MPI_STATUS_IGNORE));
    if (done) return Status::Ok();
    if (round >= kQuickRounds && !ends_) SMDDP_RETURN_IF_ERROR(Step());
    if (deadline_.passed()) {
      AbandonMpi();
      return Status(Reason::kTimedOut, TooLate(what_, Missing()));
    }
    Pause(round);
  }
}

Status RollCall::End(MPI_Comm comm) {
  ends_ = true;
  auto counts = std::make_unique<std::vector<int>>(told_);  // per rank, and behind them those for this rank
  counts->push_back(0);
  MPI_Request request;
  SMDDP_MPI(MPI_Ireduce_scatter_block(counts->data(), &counts->back(), 1, MPI_INT, MPI_SUM, comm, &request));
  const Status counted = Await(&request);
  const size_t coming = counts->back();
  if (!counted.ok()) (void)counts.release();  // MPI still writes there
  const Deadline arrival = Deadline::After(kArrivalSeconds);
  for (int round = 0; counted.ok() && waiting_.size() < coming && !arrival.passed(); ++round) {
    SMDDP_RETURN_IF_ERROR(Step());
    Pause(round);
  }
  return counted;
}

Status RollCall::Step() {
  for (int came = 1; came != 0;) {
    MPI_Message message;
    MPI_Status status;
    SMDDP_MPI(MPI_Improbe(MPI_ANY_SOURCE, kTag, comm_, &came, &message, &status));
    if (!came) break;
    SMDDP_MPI(MPI_Mrecv(nullptr, 0, MPI_BYTE, &message, MPI_STATUS_IGNORE));
    waiting_.insert(status.MPI_SOURCE);
  }
  for (int rank = 0; rank < static_cast<int>(told_.size()) && !ends_; ++rank) {
    if (rank == rank_ || told_[rank] != 0 || !(half_.passed() || waiting_.count(rank) != 0)) continue;
    told_[rank] = 1;
    MPI_Request request;
    SMDDP_MPI(MPI_Isend(nullptr, 0, MPI_BYTE, rank, kTag, comm_, &request));
    SMDDP_MPI(MPI_Request_free(&request));
  }
  return Status::Ok();
}

std::string RollCall::Missing() const {
  std::string ranks;
  for (int rank = 0; rank < static_cast<int>(told_.size()) && !ends_; ++rank) {
    if (rank != rank_ && waiting_.count(rank) == 0) ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
  }
  return ranks.empty() ? "" : ": missing on rank " + ranks;
}

}  // namespace smddp
