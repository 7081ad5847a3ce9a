// Tagged, nonblocking messages over MPI.
#pragma once

#include <mpi.h>

#include <atomic>
#include <deque>
#include <list>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "transport/tag_split.h"
#include "transport/transport.h"

namespace smddp {

// Peers are ranks of the communicators, which belong to the caller and outlive this object. They have the same ranks;
// where MPI's tags are shorter than ours, the upper bits of a tag choose one. Messages are at most 1 GiB: callers
// split larger ones.
class MpiTransport : public Transport {
 public:
  // As many communicators as `tags` says.
  MpiTransport(std::vector<MPI_Comm> comms, TagSplit tags) : comms_(std::move(comms)), tags_(tags) {}
  ~MpiTransport() override { (void)Abort(); }

  Result<Ticket> Send(int peer, Tag tag, BufferView bytes) override;
  Result<Ticket> Recv(int peer, Tag tag, BufferView bytes) override;
  Result<bool> Test(Ticket ticket) override;
  Status Post(int peer, std::string message) override;
  bool Poll(Message* message) override { return TakeOldest(&control_inbox_, message); }
  void Forget(int) override {}  // MPI buffers small messages, and waits for each message separately
  Result<bool> Progress() override;
  bool busy() const override { return !requests_.empty() || !posts_.empty() || !incoming_.empty(); }
  bool rings_doorbell() const override { return false; }
  int64_t bytes_sent() const override { return bytes_sent_; }
  std::vector<int> lost() const override { return {lost_.begin(), lost_.end()}; }
  bool Abort() override;

 private:
  static constexpr int kSending = -1;
  struct Transfer {
    MPI_Request request;
    int expected;  // bytes to receive, or kSending
  };

  struct Control {  // a message on its way
    Message message;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  MPI_Comm CommOf(uint32_t packed) const { return comms_[tags_.CommunicatorOf(packed)]; }
  Status Check(int code, const char* call);
  Status TestPosts();
  Status StartReceiving();
  Status FinishReceiving();

  const std::vector<MPI_Comm> comms_;
  const TagSplit tags_;
  Ticket next_ticket_ = 1;
  std::atomic<int64_t> bytes_sent_{0};
  std::unordered_map<Ticket, Transfer> requests_;
  std::list<Control> posts_;
  std::list<Control> incoming_;  // in the order of arrival, which is kept for each sender
  std::deque<Message> control_inbox_;
  std::set<int> lost_;  // peers that have died
};

}  // namespace smddp
