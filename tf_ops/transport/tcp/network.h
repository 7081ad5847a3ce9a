// The addresses of all ranks of a job, and the connections that other ranks open to this one. Its thread accepts them;
// one that does not prove within 10 s that it knows the job's key is closed, as is the oldest of too many.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/clock.h"
#include "core/status.h"
#include "transport/tcp/handshake.h"
#include "transport/tcp/socket.h"
#include "transport/world.h"

namespace smddp {

// Threads: any.
class TcpNetwork {
 public:
  static Result<std::shared_ptr<TcpNetwork>> Start(const World& world);
  ~TcpNetwork();

  int rank() const { return world_.rank; }
  int size() const { return static_cast<int>(world_.addresses.size()); }
  const Bits128& key() const { return world_.key; }
  const std::string& address(int rank) const { return world_.addresses[static_cast<size_t>(rank)]; }

  struct Accepted {
    int from = -1;
    Socket socket;
  };
  // The connections for `context` that have come since the last call.
  std::vector<Accepted> Take(uint32_t context);

 private:
  struct Pending {
    Socket socket;
    Bits128 challenge;
    Deadline until;
    Claim claim;
    size_t came = 0;  // bytes of the claim
  };

  explicit TcpNetwork(const World& world) : world_(world), listener_(world.listener) {}
  void Serve();
  void Admit();
  // False: it is no longer pending.
  bool Continue(Pending* pending);

  const World world_;
  const Socket listener_;
  Socket wake_;  // an eventfd: ends the thread
  std::thread thread_;
  std::list<Pending> pending_;        // the thread's; the oldest first
  std::atomic<uint64_t> waiting_{0};  // connections in accepted_
  std::mutex mutex_;                  // of what follows
  std::map<uint32_t, std::vector<Accepted>> accepted_;
};

}  // namespace smddp
