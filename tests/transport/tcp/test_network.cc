#include <sys/socket.h>

#include <memory>
#include <vector>

#include "native/testing.h"
#include "transport/tcp/handshake.h"
#include "transport/tcp/network.h"
#include "transport/tcp/world.h"

namespace smddp {
namespace {

// A connection to rank 1 of the world, with the challenge that has come.
struct Caller {
  explicit Caller(const TcpRanks& world) : socket(Value(Socket::Connect(world.networks[1]->address(1)))) {
    const Deadline deadline = Deadline::After(20);
    while (recv(socket.file(), &challenge, sizeof(challenge), 0) != sizeof(challenge)) {
      REQUIRE_FALSE(deadline.passed());
    }
  }
  void Claims(const Claim& claim) const {
    CHECK(send(socket.file(), &claim, sizeof(claim), MSG_NOSIGNAL) == sizeof(claim));
  }
  // Is the connection closed without a word?
  bool IsRefused() const {
    const Deadline deadline = Deadline::After(20);
    char byte = 0;
    ssize_t came = -1;
    while (came < 0 && !deadline.passed()) came = recv(socket.file(), &byte, 1, 0);
    return came == 0;
  }

  Socket socket;
  Bits128 challenge = {};
};

TEST_CASE("network: nobody without the key is heard, and no claim that was made for something else") {
  TcpRanks world(2);
  const Bits128 key = world.networks[1]->key();
  const Caller stranger(world), repeats(world), for_another(world), of_nobody(world), newer(world), rank(world);
  const Ends ends = {/*context=*/3, /*from=*/0, /*to=*/1};
  const Claim claim = Value(MakeClaim(key, rank.challenge, ends));
  rank.Claims(claim);
  stranger.Claims(Value(MakeClaim({9, 9}, stranger.challenge, ends)));
  repeats.Claims(claim);
  for_another.Claims(Value(MakeClaim(key, for_another.challenge, {3, 0, 0})));
  of_nobody.Claims(Value(MakeClaim(key, of_nobody.challenge, {3, 2, 1})));
  newer.Claims(Value(MakeClaim(key, newer.challenge, {3, 0, 1, Ends().version + 1})));
  for (const Caller* const caller : {&stranger, &repeats, &for_another, &of_nobody, &newer}) CHECK(caller->IsRefused());
  CHECK(world.networks[1]->Take(2).empty());
  std::vector<TcpNetwork::Accepted> accepted;  // the thread that refuses the others may come to it last
  const Deadline deadline = Deadline::After(20);
  while (accepted.empty() && !deadline.passed()) accepted = world.networks[1]->Take(3);
  REQUIRE(accepted.size() == 1);
  CHECK(accepted[0].from == 0);
}

TEST_CASE("network: of too many that say nothing the oldest is closed, and a rank still comes in") {
  TcpRanks world(2);
  const Caller oldest(world);
  std::vector<std::unique_ptr<Caller>> others;
  for (int i = 0; i < 70; ++i) others.push_back(std::make_unique<Caller>(world));
  CHECK(oldest.IsRefused());
  CHECK(world.ranks[0]->Post(1, "hello").ok());
  Message message;
  CHECK(world.MoveUntil([&] { return world.ranks[1]->Poll(&message); }));
  CHECK(message.bytes == "hello");
}

TEST_CASE("network: a rank does not speak to a process without the key") {
  std::vector<World> worlds = WorldsOf(2);
  worlds[1].key[0] ^= 1;
  const auto here = Value(TcpNetwork::Start(worlds[0])), other = Value(TcpNetwork::Start(worlds[1]));
  TcpTransport transport(here, 1, {0, 1});
  CHECK(transport.Post(1, "secret").ok());
  Status status;
  const Deadline deadline = Deadline::After(20);
  while (status.ok() && !deadline.passed()) status = transport.Progress().status();
  CHECK(status.reason() == Reason::kPeerLost);  // the other side has closed the connection
}

}  // namespace
}  // namespace smddp
