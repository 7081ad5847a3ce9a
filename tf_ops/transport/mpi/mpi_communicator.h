// The communicators of sessions and the start-up exchange. The only folder that includes mpi.h is this one.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/status.h"
#include "transport/transport.h"

namespace smddp {

// The calls of a session go to a communicator of its own, so that they never meet the user's.
class MpiCommunicator {
 public:
  // Initialises MPI when nobody has. `communicator` points to an MPI_Comm of the caller or is null; `ranks` picks
  // world ranks (empty: all). Collective over the ranks that take part. Where MPI survives losses, over those of them
  // that are alive, which are numbered anew in their order; MPI then looks for ranks that are silent for
  // `silence_s` itself (0: it does not).
  static Result<std::unique_ptr<MpiCommunicator>> Open(const void* communicator, const std::vector<int>& ranks,
                                                       double silence_s, const Deadline& deadline);
  // The end of the start-up that Open began, of which `mine` is this rank's part. False: somebody died meanwhile, begin
  // again with Open, on every rank. Where MPI does not survive losses nothing is asked: true, or `mine`. Collective.
  Result<bool> Conclude(const Status& mine, const Deadline& deadline);
  // A communicator of some of my ranks, in the order given. Collective over these alone, so everybody must know that
  // they all come; `what` makes it, for messages.
  Result<std::unique_ptr<MpiCommunicator>> Subset(const std::vector<int>& ranks, const char* what,
                                                  const Deadline& deadline) const;
  // The ranks here of the members of an MPI_Comm, in its order; none for MPI_COMM_NULL.
  Result<std::vector<int>> RanksOf(const void* communicator) const;

  // The communicator is left to MPI_Finalize (when the process exits): MPI reuses the number of a freed one, and then a
  // last message of this session, still on its way, would be taken for one of the next.
  ~MpiCommunicator();

  int rank() const { return rank_; }
  int size() const { return size_; }
  // Every rank's text, in rank order. Collective.
  Result<std::vector<std::string>> Exchange(const std::string& mine, const Deadline& deadline);
  std::unique_ptr<Transport> NewTransport();

 private:
  struct Handle;
  MpiCommunicator();

  std::unique_ptr<Handle> handle_;
  int rank_ = 0, size_ = 1;
};

}  // namespace smddp
