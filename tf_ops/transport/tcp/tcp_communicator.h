// A session's ranks over TCP: each transport of each communicator has connections of its own, told apart by its
// context.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transport/communicator.h"
#include "transport/tcp/tcp_transport.h"

namespace smddp {

class TcpCommunicator : public Communicator {
 public:
  // Of all ranks of the world. Does not wait for them.
  static Result<std::unique_ptr<Communicator>> Open(const World& world);

  int rank() const override { return rank_; }
  // Over rank 0. When it is too late, rank 0 tells all that have come which ranks are missing.
  Result<std::vector<std::string>> Exchange(const std::string& mine, const Deadline& deadline) override;
  std::unique_ptr<Transport> NewTransport() override { return MakeTransport(/*for_engine=*/true); }
  Result<std::unique_ptr<Communicator>> Subset(const std::vector<int>& ranks, int number, const char* what,
                                               const Deadline& deadline) const override;

 private:
  TcpCommunicator(std::shared_ptr<TcpNetwork> network, int number, const char* what, std::vector<int> world_ranks);
  std::unique_ptr<TcpTransport> MakeTransport(bool for_engine) const;
  Result<std::vector<std::string>> Collect(const std::string& mine, const Deadline& deadline);
  std::string TooLate(const std::vector<bool>& came) const;
  // The next message. An error when it is too late, or a rank that is not among those that `came` has left, or has
  // died.
  Result<Message> Receive(const std::vector<bool>& came, const Deadline& deadline);
  Status Flush(const Deadline& deadline);

  const std::shared_ptr<TcpNetwork> network_;
  const int number_;  // of the process set; 0: all ranks
  const std::string what_;
  const std::vector<int> world_ranks_;
  int rank_ = 0;
  std::unique_ptr<TcpTransport> start_;  // of the exchanges
  std::vector<Message> early_;           // of the next exchange, at rank 0
};

}  // namespace smddp
