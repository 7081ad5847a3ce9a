// The communicators of sessions and the start-up exchange. Only this folder includes mpi.h.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/status.h"
#include "transport/transport.h"

namespace smddp {

// A session makes its calls on its own communicator, so that they do not interfere with the user's.
class MpiCommunicator {
 public:
  // Initialises MPI unless it is initialised already. `communicator` points to an MPI_Comm of the caller or is null;
  // `ranks` selects world ranks (empty: all). Collective over the ranks that take part. Where MPI survives losses,
  // collective over those of them that are alive; they are renumbered in their order, and MPI itself detects ranks
  // that are silent for `silence_s` (0: it does not).
  static Result<std::unique_ptr<MpiCommunicator>> Open(const void* communicator, const std::vector<int>& ranks,
                                                       double silence_s, const Deadline& deadline);
  // Ends the start-up that Open began; `mine` is this rank's result. False: a rank died in the meantime, and every
  // rank must begin again with Open. Where MPI does not survive losses the ranks are not asked: returns true, or the
  // error `mine`. Collective.
  Result<bool> Conclude(const Status& mine, const Deadline& deadline);
  // A communicator of some of my ranks, in the order given. Collective over these ranks only, so all of them must
  // know that they call it. `what` names the purpose in messages.
  Result<std::unique_ptr<MpiCommunicator>> Subset(const std::vector<int>& ranks, const char* what,
                                                  const Deadline& deadline) const;
  // This communicator's ranks of the members of an MPI_Comm, in its order; none for MPI_COMM_NULL.
  Result<std::vector<int>> RanksOf(const void* communicator) const;

  // The communicator is not freed before MPI_Finalize (when the process exits), unless Free was called: MPI reuses the
  // number of a freed one, and a late message of this session could be received by the next.
  ~MpiCommunicator();
  // Frees it when every message between its ranks has arrived. Collective, after all of them have ended the session
  // that used it. False: some rank did not answer until the deadline, and it is kept.
  Result<bool> Free(const Deadline& deadline);

  int rank() const { return rank_; }
  int size() const { return size_; }
  // The texts of all ranks, in rank order. Collective.
  Result<std::vector<std::string>> Exchange(const std::string& mine, const Deadline& deadline);
  std::unique_ptr<Transport> NewTransport();

 private:
  struct Handle;
  MpiCommunicator();
  // Of a communicator that is made: the rest of this object.
  Status Prepare(const Deadline& deadline);

  std::unique_ptr<Handle> handle_;
  int rank_ = 0, size_ = 1;
};

}  // namespace smddp
