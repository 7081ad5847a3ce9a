// The communicators of sessions and the start-up exchange. Only this folder includes mpi.h.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/status.h"
#include "transport/communicator.h"

namespace smddp {

// A session makes its calls on its own communicator, so that they do not interfere with the user's.
class MpiCommunicator : public Communicator {
 public:
  static Result<std::unique_ptr<Communicator>> Open(const void* communicator, const std::vector<int>& ranks,
                                                    const Deadline& deadline);
  // The MPI_Comm is not freed before MPI_Finalize (when the process exits), unless Free was called: MPI reuses the
  // number of a freed one, and a late message of this session could be received by the next.
  ~MpiCommunicator() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  Result<std::vector<std::string>> Exchange(const std::string& mine, const Deadline& deadline) override;
  std::unique_ptr<Transport> NewTransport() override;
  Result<std::unique_ptr<Communicator>> Subset(const std::vector<int>& ranks, int number, const char* what,
                                               const Deadline& deadline) const override;
  Result<std::vector<int>> RanksOf(const void* communicator) const override;
  Result<bool> Free(const Deadline& deadline) override;

 private:
  struct Handle;
  MpiCommunicator();
  // Of a communicator that is made: the rest of this object.
  Status Prepare(const Deadline& deadline);

  std::unique_ptr<Handle> handle_;
  int rank_ = 0, size_ = 1;
};

}  // namespace smddp
