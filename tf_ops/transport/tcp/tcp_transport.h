// Tagged, nonblocking messages over TCP connections of this library's own. A connection to a peer is opened by who
// first sends to it, and serves both directions; where both do so at the same time there are two, and each sends on its
// own.
//
// A connection that ends without a goodbye (a process that has died) is the loss of that peer. Messages wait for no
// receive: one that nobody has asked for yet is kept in memory (arrivals.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include "transport/tcp/arrivals.h"
#include "transport/tcp/connection.h"
#include "transport/tcp/network.h"
#include "transport/transport.h"

namespace smddp {

class TcpTransport : public Transport {
 public:
  // `context`: the same number for the transports that belong together, on all ranks, and for no others of this job.
  // `world_ranks`: the peers, by rank.
  TcpTransport(std::shared_ptr<TcpNetwork> network, uint32_t context, std::vector<int> world_ranks);
  // Tells the peers that this is no loss, and gives what waits one second to leave.
  ~TcpTransport() override;

  Result<Ticket> Send(int peer, Tag tag, BufferView bytes) override;
  Result<Ticket> Recv(int peer, Tag tag, BufferView bytes) override;
  Result<bool> Test(Ticket ticket) override;
  Status Post(int peer, std::string message) override;
  bool Poll(Message* message) override { return TakeOldest(&control_inbox_, message); }
  void Forget(int peer) override { forgotten_.insert(peer); }
  Result<bool> Progress() override;
  bool busy() const override;
  bool rings_doorbell() const override { return false; }
  int64_t bytes_sent() const override { return bytes_sent_; }
  std::vector<int> lost() const override { return {lost_.begin(), lost_.end()}; }
  int64_t UnansweredNs(int peer) override { return out_[peer] ? out_[peer]->UnansweredNs() : 0; }
  bool Abort() override;
  // Opens a connection to that peer, if there is none: where it has died, `Progress` reports the loss.
  Status Connect(int peer) { return LinkTo(peer).status(); }
  // Has that peer ended its connections in order, or was it forgotten?
  bool has_left(int peer) const { return forgotten_.count(peer) != 0; }

 private:
  // A connection and what arrives on it.
  struct Link : Connection {
    Link(TcpTransport* owner, int peer, Socket socket, const TcpNetwork* network, const Ends& ends)
        : Connection(std::move(socket), network, ends), owner(owner), peer(peer) {}
    Result<BufferView> Begin(const FrameHead& head) override;
    void End(const FrameHead& head) override;

    TcpTransport* const owner;
    const int peer;
    bool watches_writing = false;
    bool over = false;  // its goodbye has come
    std::string control;
    Arrivals::Shared data;
  };

  Result<Link*> LinkTo(int peer);
  Link* Add(int peer, Socket socket, const TcpNetwork* network, const Ends& ends);  // as Connection's
  // With epoll: reading, and writing where the connection waits for it.
  void Watch(Link* link, int operation);
  Status Admit();
  Status Queue(int peer, Frame frame);
  Status Write(Link* link);
  Result<bool> Serve(Link* link, uint32_t events);
  // `why` ends the link. An error unless the peer was expected to end it.
  Status Drop(Link* link, const Status& why);

  const std::shared_ptr<TcpNetwork> network_;
  const uint32_t context_;
  const std::vector<int> world_ranks_;
  std::vector<int> rank_of_;  // by world rank; -1: not a peer
  std::vector<Link*> out_;    // by rank, what it sends on; null: none yet
  const Socket events_;       // an epoll file
  std::list<Link> links_;
  Arrivals arrivals_;
  std::unordered_set<Ticket> sending_;
  std::deque<Message> control_inbox_;
  std::set<int> lost_, forgotten_;
  bool aborted_ = false;
  Ticket next_ticket_ = 1;
  std::atomic<int64_t> bytes_sent_{0};
};

}  // namespace smddp
