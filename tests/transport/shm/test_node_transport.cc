#include <memory>

#include "native/testing.h"
#include "transport/shm/node_transport.h"
#include "transport/shm/segment.h"

namespace smddp {
namespace {

// Three ranks of a node, 4, 6 and 9 of the world, stepped by this thread.
struct Node {
  Node() : layout(3, 3, 4096) {
    std::vector<std::byte*> data;
    for (int i = 0; i < 3; ++i) segments.push_back(Value(Segment::Private(layout.total_bytes)));
    for (const auto& segment : segments) data.push_back(segment->data());
    for (int i = 0; i < 3; ++i) {
      channels.push_back(std::make_unique<NodeChannel>(i, layout, data));
      transports.push_back(std::make_unique<NodeTransport>(Group({4, 6, 9}), *channels[i]));
    }
  }
  void Progress(int rounds = 1) {
    for (int round = 0; round < rounds; ++round) {
      for (int i = 0; i < 3; ++i) {
        Value(channels[i]->Progress());
        Value(transports[i]->Progress());
      }
    }
  }
  NodeTransport& operator[](int i) { return *transports[i]; }

  const NodeLayout layout;
  std::vector<std::unique_ptr<Segment>> segments;
  std::vector<std::unique_ptr<NodeChannel>> channels;
  std::vector<std::unique_ptr<NodeTransport>> transports;
};

TEST_CASE("node transport: messages larger than all slots arrive in pieces") {
  Node node;
  constexpr size_t kBytes = (5 << 20) + 3;
  std::vector<uint8_t> sent(kBytes), got(kBytes);
  for (size_t i = 0; i < kBytes; ++i) sent[i] = static_cast<uint8_t>(i * 13 % 251);
  const Ticket receive = Value(node[2].Recv(4, {1, 0, 0}, {got.data(), kBytes}));
  const Ticket send = Value(node[0].Send(9, {1, 0, 0}, {sent.data(), kBytes}));
  bool received = false, left = false;
  for (int round = 0; round < 10000 && !(received && left); ++round) {
    node.Progress();
    received = received || Value(node[2].Test(receive));
    left = left || Value(node[0].Test(send));
  }
  CHECK(received);
  CHECK(left);
  CHECK(got == sent);
  CHECK(node[0].bytes_sent() == kBytes);
  CHECK_FALSE(node[2].busy());
}

TEST_CASE("node transport: messages of several peers and tags are not mixed up") {
  Node node;
  int values[3][2] = {{1, 2}, {3, 4}, {5, 6}}, got[3][3][2] = {};
  std::vector<std::pair<int, Ticket>> open;
  const int ranks[] = {4, 6, 9};
  for (int to = 0; to < 3; ++to) {
    for (int from = 0; from < 3; ++from) {
      if (from == to) continue;
      for (uint16_t step = 0; step < 2; ++step) {
        open.emplace_back(to, Value(node[to].Recv(ranks[from], {1, 0, step}, {&got[to][from][step], 4})));
      }
    }
  }
  for (int from = 0; from < 3; ++from) {
    for (int to = 0; to < 3; ++to) {
      if (from == to) continue;
      for (uint16_t step : {1, 0}) Value(node[from].Send(ranks[to], {1, 0, step}, {&values[from][step], 4}));
    }
  }
  node.Progress(20);
  for (const auto& [rank, ticket] : open) CHECK(Value(node[rank].Test(ticket)));
  for (int to = 0; to < 3; ++to) {
    for (int from = 0; from < 3; ++from) {
      for (int step = 0; step < 2; ++step) CHECK(got[to][from][step] == (from == to ? 0 : values[from][step]));
    }
  }
}

TEST_CASE("node transport: control messages come from world ranks") {
  Node node;
  CHECK(node[1].Post(4, "from 6").ok());
  CHECK(node[2].Post(4, "from 9").ok());
  node.Progress(5);
  std::vector<std::pair<int, std::string>> got;
  for (Message message; node[0].Poll(&message);) got.emplace_back(message.from, message.bytes);
  CHECK(got == std::vector<std::pair<int, std::string>>{{6, "from 6"}, {9, "from 9"}});
}

}  // namespace
}  // namespace smddp
