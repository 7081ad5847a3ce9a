// Ranks of a job over TCP that are objects of one process, on the loopback interface.
#pragma once

#include <memory>
#include <vector>

#include "inproc/worlds.h"
#include "native/testing.h"
#include "transport/tcp/network.h"
#include "transport/tcp/tcp_transport.h"

namespace smddp {

struct TcpRanks {
  explicit TcpRanks(int size) {
    std::vector<int> all;
    for (int rank = 0; rank < size; ++rank) all.push_back(rank);
    for (const World& world : WorldsOf(size)) {
      REQUIRE(world.listener >= 0);
      networks.push_back(Value(TcpNetwork::Start(world)));
      ranks.push_back(std::make_unique<TcpTransport>(networks.back(), /*context=*/1, all));
    }
  }
  // Lets all ranks move until `done`, at most 20 s; returns whether it is.
  template <class Done>
  bool MoveUntil(Done done) {
    const Deadline deadline = Deadline::After(20);
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
