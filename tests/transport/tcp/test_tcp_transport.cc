#include <linux/filter.h>
#include <unistd.h>

#include <algorithm>

#include "native/testing.h"
#include "transport/tcp/world.h"

namespace smddp {
namespace {

std::vector<int> Numbers(int first, size_t count) {
  std::vector<int> numbers(count);
  for (size_t i = 0; i < count; ++i) numbers[i] = first + 31 * static_cast<int>(i);
  return numbers;
}

BufferView View(std::vector<int>* numbers) { return {numbers->data(), numbers->size() * sizeof(int)}; }

TEST_CASE("tcp: messages of all lengths, both ways at the same time, early and late") {
  for (const size_t count : {size_t{0}, size_t{1}, size_t{2047}, size_t{2048}, size_t{100000}, size_t{5000000}}) {
    TcpRanks world(2);
    TcpTransport &a = *world.ranks[0], &b = *world.ranks[1];
    std::vector<int> from_a = Numbers(1, count), from_b = Numbers(2, count), at_a(count), at_b(count);
    const Ticket receives_a = Value(a.Recv(1, {5, 1, 2}, View(&at_a)));
    const Ticket sends_a = Value(a.Send(1, {5, 1, 2}, View(&from_a)));
    const Ticket sends_b = Value(b.Send(0, {5, 1, 2}, View(&from_b)));
    bool sent_a = false, sent_b = false, received_a = false;
    CHECK(world.MoveUntil([&] {
      sent_a = sent_a || Value(a.Test(sends_a));
      sent_b = sent_b || Value(b.Test(sends_b));
      received_a = received_a || Value(a.Test(receives_a));
      return sent_a && sent_b && received_a;
    }));
    CHECK(at_a == from_b);
    const Ticket receives_b = Value(b.Recv(0, {5, 1, 2}, View(&at_b)));
    CHECK(world.MoveUntil([&] { return Value(b.Test(receives_b)); }));
    CHECK(at_b == from_a);
    CHECK(a.bytes_sent() == static_cast<int64_t>(4 * count));
    CHECK_FALSE(a.busy());
    CHECK_FALSE(b.busy());
  }
}

TEST_CASE("tcp: tags keep messages apart, control messages stay in order and overtake data") {
  TcpRanks world(3);
  TcpTransport &a = *world.ranks[0], &b = *world.ranks[1];
  constexpr size_t kMany = 3000000;
  std::vector<int> big = Numbers(3, kMany), small = Numbers(4, 10), big_at(kMany), small_at(10);
  Value(a.Send(1, {1, 0, 0}, View(&big)));
  Value(a.Send(1, {2, 0, 0}, View(&small)));
  for (int i = 0; i < 50; ++i) CHECK(a.Post(1, std::to_string(i)).ok());
  CHECK(world.ranks[2]->Post(1, "other").ok());
  int next = 0, others = 0;
  CHECK(world.MoveUntil([&] {
    for (Message message; b.Poll(&message);) {
      if (message.from == 2) {
        CHECK(message.bytes == "other");
        ++others;
      } else {
        CHECK(message.bytes == std::to_string(next++));
      }
    }
    return next == 50 && others == 1;
  }));
  const Ticket second = Value(b.Recv(0, {2, 0, 0}, View(&small_at)));
  const Ticket first = Value(b.Recv(0, {1, 0, 0}, View(&big_at)));
  CHECK(world.MoveUntil([&] { return Value(b.Test(second)); }));
  CHECK(world.MoveUntil([&] { return Value(b.Test(first)); }));
  CHECK(small_at == small);
  CHECK(big_at == big);
}

TEST_CASE("tcp: a peer that ends in order is no loss, one that vanishes is") {
  for (const bool in_order : {true, false}) {
    TcpRanks world(2);
    CHECK(world.ranks[0]->Post(1, "hello").ok());
    Message message;
    CHECK(world.MoveUntil([&] { return world.ranks[1]->Poll(&message); }));
    if (in_order) {
      std::thread ends([leaving = std::move(world.ranks[0])]() mutable { leaving.reset(); });
      CHECK(world.MoveUntil([&] { return world.ranks[1]->has_left(0); }));
      ends.join();
      CHECK(world.ranks[1]->Post(0, "too late").ok());
      CHECK(world.ranks[1]->lost().empty());
      continue;
    }
    // As the system does for a process that is killed.
    TcpTransport* const vanished = world.ranks[0].release();
    for (int file = 3; file < 200; ++file) {
      sockaddr_in name = {};
      socklen_t length = sizeof(name);
      const bool connected = getpeername(file, reinterpret_cast<sockaddr*>(&name), &length) == 0;
      if (connected && world.networks[1]->address(1) == "127.0.0.1:" + std::to_string(ntohs(name.sin_port))) {
        shutdown(file, SHUT_RDWR);
      }
    }
    CHECK(world.MoveUntil([&] { return !world.ranks[1]->lost().empty(); }));
    CHECK(world.last.reason() == Reason::kPeerLost);
    CHECK(world.ranks[1]->lost() == std::vector<int>{0});
    delete vanished;
  }
}

// As if the host of `to` were cut off: its kernel drops what comes from the others, and acknowledges nothing.
void MakeSilent(TcpRanks* world, int to) {
  sock_filter drop = {BPF_RET | BPF_K, 0, 0, 0};
  const sock_fprog all = {1, &drop};
  int silent = 0;
  for (int file = 3; file < 200; ++file) {
    sockaddr_in name = {}, other = {};
    socklen_t length = sizeof(name);
    if (getsockname(file, reinterpret_cast<sockaddr*>(&name), &length) != 0) continue;
    if (getpeername(file, reinterpret_cast<sockaddr*>(&other), &length) != 0) continue;
    if (world->networks[to]->address(to) != "127.0.0.1:" + std::to_string(ntohs(name.sin_port))) continue;
    silent += setsockopt(file, SOL_SOCKET, SO_ATTACH_FILTER, &all, sizeof(all)) == 0 ? 1 : 0;
  }
  REQUIRE(silent > 0);
}

TEST_CASE("tcp: a host that acknowledges nothing is told from a process that reads nothing") {
  for (const bool is_silent : {true, false}) {
    std::vector<int> big = Numbers(3, 30000000);  // longer than the transport, which ends with this sent in part
    TcpRanks world(3);
    TcpTransport &a = *world.ranks[0], &b = *world.ranks[1];
    Message message;
    CHECK(a.UnansweredNs(1) == 0);  // no connection
    CHECK(a.Post(1, "hello").ok());
    CHECK(world.MoveUntil([&] { return b.Poll(&message); }));
    if (is_silent) MakeSilent(&world, 1);
    CHECK(a.Post(1, "after").ok());
    if (!is_silent) Value(a.Send(1, {1, 0, 0}, View(&big)));  // more than its system keeps for it
    const int64_t begun_ns = NowNs();
    int64_t asked_ns = 0, unnoticed_ns = 0;  // the times after `begun_ns` of the last question, and of the last "no"
    bool was_noticed = false;
    while (asked_ns < 4'000'000'000 && !was_noticed) {
      CHECK(a.Progress().ok());
      asked_ns = NowNs() - begun_ns;
      was_noticed = a.UnansweredNs(1) > 1'000'000'000;
      if (!was_noticed) unnoticed_ns = asked_ns;
      usleep(1000);
    }
    CHECK(was_noticed == is_silent);
    CHECK(a.UnansweredNs(2) == 0);
    if (!is_silent) {
      CHECK(a.busy());
      continue;
    }
    CHECK(unnoticed_ns < 3'000'000'000);
    Value(a.Send(1, {1, 0, 0}, View(&big)));
    CHECK(a.busy());
    CHECK(a.Abort());
    CHECK_FALSE(a.busy());  // nothing waits for that host
    CHECK(a.Post(1, "why").ok());
    CHECK_FALSE(a.busy());
  }
}

TEST_CASE("tcp: after Abort no memory of callers is used, and control messages still leave") {
  TcpRanks world(2);
  TcpTransport &a = *world.ranks[0], &b = *world.ranks[1];
  std::vector<int> sent = Numbers(8, 4000000), into(4000000);
  Value(a.Send(1, {1, 0, 0}, View(&sent)));
  Value(b.Recv(0, {1, 0, 0}, View(&into)));
  CHECK(world.MoveUntil([&] { return into[0] == sent[0] && into[1] != 0; }));
  CHECK(a.Abort());
  CHECK(b.Abort());
  const std::vector<int> before = into;
  std::vector<int>().swap(sent);
  CHECK(a.Post(1, "why").ok());
  Message message;
  CHECK(world.MoveUntil([&] { return b.Poll(&message); }));
  CHECK(message.bytes == "why");
  CHECK(into == before);
}

TEST_CASE("tcp: what is sent in part at Abort arrives whole, though a second Abort finds the memory changed") {
  TcpRanks world(2);
  TcpTransport &a = *world.ranks[0], &b = *world.ranks[1];
  std::vector<int> sent = Numbers(9, 30000000), into(sent.size());
  const std::vector<int> before = sent;
  Value(a.Send(1, {1, 0, 0}, View(&sent)));
  const Ticket receives = Value(b.Recv(0, {1, 0, 0}, View(&into)));
  CHECK(world.MoveUntil([&] { return into[0] == sent[0] && into[1] != 0; }));
  CHECK(a.Abort());
  std::fill(sent.begin(), sent.end(), -1);
  CHECK(a.Abort());  // as the destructor does
  CHECK(world.MoveUntil([&] { return Value(b.Test(receives)); }));
  const bool is_whole = into == before;  // doctest would print both
  CHECK(is_whole);
}

}  // namespace
}  // namespace smddp
