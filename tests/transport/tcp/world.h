// Ranks of a job over TCP that are objects of one process, on the loopback interface.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <memory>
#include <string>
#include <vector>

#include "native/testing.h"
#include "transport/tcp/network.h"
#include "transport/tcp/tcp_transport.h"

namespace smddp {

// A socket that listens on a free port; `*address` is where.
inline int ListenOnLoopback(std::string* address) {
  const int file = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in place = {};
  place.sin_family = AF_INET;
  place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(place);
  REQUIRE(bind(file, reinterpret_cast<sockaddr*>(&place), length) == 0);
  REQUIRE(listen(file, 64) == 0);
  REQUIRE(getsockname(file, reinterpret_cast<sockaddr*>(&place), &length) == 0);
  *address = "127.0.0.1:" + std::to_string(ntohs(place.sin_port));
  return file;
}

inline std::vector<World> WorldsOf(int size) {
  std::vector<World> worlds(static_cast<size_t>(size));
  std::vector<std::string> addresses(static_cast<size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    worlds[rank].rank = rank;
    worlds[rank].key = {0x0123456789abcdefull, 0xfedcba9876543210ull};
    worlds[rank].listener = ListenOnLoopback(&addresses[rank]);
  }
  for (World& world : worlds) world.addresses = addresses;
  return worlds;
}

struct TcpRanks {
  explicit TcpRanks(int size) {
    std::vector<int> all;
    for (int rank = 0; rank < size; ++rank) all.push_back(rank);
    for (const World& world : WorldsOf(size)) {
      networks.push_back(Value(TcpNetwork::Start(world)));
      ranks.push_back(std::make_unique<TcpTransport>(networks.back(), /*context=*/1, all));
    }
  }
  // Lets all ranks move until `done`, at most ten seconds; returns whether it is.
  template <class Done>
  bool MoveUntil(Done done) {
    const Deadline deadline = Deadline::After(10);
    while (!done()) {
      if (deadline.passed()) return false;
      for (auto& rank : ranks) {
        if (rank != nullptr) last = rank->Progress().status();
        if (!last.ok()) return done();
      }
    }
    return true;
  }

  std::vector<std::shared_ptr<TcpNetwork>> networks;
  std::vector<std::unique_ptr<TcpTransport>> ranks;
  Status last;
};

}  // namespace smddp
