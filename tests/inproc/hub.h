// Ranks that are threads of one process, for tests: the network is a table of mailboxes.
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/sync/doorbell.h"
#include "transport/transport.h"

namespace smddp {

// Threads: any. Shared by all ranks; lives longer than their transports.
class InprocHub {
 public:
  explicit InprocHub(int size) : boxes_(size) {}

  // Messages to `rank` ring this bell from now on; null: they ring nothing.
  void SetDoorbell(int rank, Doorbell* doorbell);
  struct Mail {
    int from;
    bool control;
    uint32_t tag;
    int depth;  // see InprocTransport::depth
    std::string bytes;
  };
  void Deliver(int to, Mail mail);
  std::vector<Mail> Collect(int rank);

 private:
  struct Box {
    std::vector<Mail> mail;
    Doorbell* doorbell = nullptr;
  };
  std::mutex mutex_;
  std::vector<Box> boxes_;
};

class InprocTransport : public Transport {
 public:
  InprocTransport(InprocHub& hub, int rank) : hub_(hub), rank_(rank) {}

  Result<Ticket> Send(int peer, Tag tag, BufferView bytes) override;
  Result<Ticket> Recv(int peer, Tag tag, BufferView bytes) override;
  Result<bool> Test(Ticket ticket) override;
  Status Post(int peer, std::string message) override;
  bool Poll(Message* message) override;
  void Forget(int) override {}
  Result<bool> Progress() override;
  bool busy() const override { return !receives_.empty(); }
  bool rings_doorbell() const override { return true; }
  int64_t bytes_sent() const override { return bytes_sent_; }
  // Of data.
  struct Sent {
    int to = 0;
    int64_t bytes = 0;
    int after = 0;  // the sender's depth
  };
  const std::vector<Sent>& sent() const { return sent_; }
  // How many messages had to travel one after another until what this rank was told to be done was done.
  int depth() const { return depth_; }
  bool Abort() override {
    receives_.clear();
    return true;
  }

 private:
  struct Receive {
    Ticket ticket;
    uint64_t key;  // peer and tag
    BufferView bytes;
  };
  static uint64_t Key(int peer, uint32_t tag) { return (uint64_t(peer) << 32) | tag; }

  InprocHub& hub_;
  const int rank_;
  Ticket next_ticket_ = 1;
  std::atomic<int64_t> bytes_sent_{0};
  std::vector<Sent> sent_;
  int depth_ = 0;
  std::vector<Receive> receives_;                                       // posted, in order
  std::unordered_map<uint64_t, std::vector<InprocHub::Mail>> arrived_;  // by key, in order
  std::vector<Message> control_;
  std::map<Ticket, int> done_;  // with the depth of what was received
};

}  // namespace smddp
