// The communicators of sessions and the start-up exchange. Only this folder includes mpi.h.
#pragma once

#include <mpi.h>

#include <memory>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/status.h"
#include "transport/communicator.h"
#include "transport/tag_split.h"

namespace smddp {

// A session makes its calls on its own communicator, so that they do not interfere with the user's. It is not freed
// before MPI_Finalize (when the process exits), unless Free was called: MPI reuses the number of a freed one, and a
// late message of this session could be received by the next.
class MpiCommunicator : public Communicator {
 public:
  static Result<std::unique_ptr<Communicator>> Open(const void* communicator, const std::vector<int>& ranks,
                                                    const Deadline& deadline);

  int rank() const override { return rank_; }
  Result<std::vector<std::string>> Exchange(const std::string& mine, const Deadline& deadline) override;
  std::unique_ptr<Transport> NewTransport() override;
  Result<std::unique_ptr<Communicator>> Subset(const std::vector<int>& ranks, int number, const char* what,
                                               const Deadline& deadline) const override;
  Result<std::vector<int>> RanksOf(const void* communicator) const override;
  Result<bool> Free(const Deadline& deadline) override;

 private:
  // The rest of this object, of a communicator that is made for it.
  Status Prepare(MPI_Comm comm, const Deadline& deadline);

  // The one that was made, and where MPI's tags are short, duplicates of it, between which tags choose.
  std::vector<MPI_Comm> comms_;
  TagSplit tags_{1};
  int rank_ = 0, size_ = 1;
};

}  // namespace smddp
