#include <memory>

#include "native/testing.h"
#include "transport/shm/node_control.h"
#include "transport/shm/segment.h"

namespace smddp {
namespace {

struct Node {
  Node() : layout(2, 2, 4096) {
    for (int i = 0; i < 2; ++i) segments.push_back(Value(Segment::Private(layout.total_bytes)));
    const std::vector<std::byte*> data = {segments[0]->data(), segments[1]->data()};
    for (int i = 0; i < 2; ++i) {
      channels.push_back(std::make_unique<NodeChannel>(i, layout, data));
      controls.push_back(std::make_unique<NodeControl>(*channels[i]));
    }
  }
  void Progress(int i) {
    Value(channels[i]->Progress());
    Value(controls[i]->Progress());
  }

  const NodeLayout layout;
  std::vector<std::unique_ptr<Segment>> segments;
  std::vector<std::unique_ptr<NodeChannel>> channels;
  std::vector<std::unique_ptr<NodeControl>> controls;
};

TEST_CASE("node control: messages of all lengths arrive whole and in order") {
  Node node;
  std::vector<std::string> sent, got;
  for (const size_t length : {0, 1, 100, 70'000, 3, 1'000'000, 0}) {
    std::string text(length, ' ');
    for (size_t i = 0; i < length; ++i) text[i] = static_cast<char>('a' + (i * 7 + length) % 26);
    sent.push_back(text);
    node.controls[0]->Post(1, text);
  }
  CHECK(node.controls[0]->busy());
  for (int round = 0; round < 2000 && got.size() < sent.size(); ++round) {
    node.Progress(0);
    node.Progress(1);
    for (Message message; node.controls[1]->Poll(&message);) {
      CHECK(message.from == 0);
      got.push_back(message.bytes);
    }
  }
  CHECK((got == sent));
  CHECK_FALSE(node.controls[0]->busy());
}

TEST_CASE("node control: what waits for a peer that has left is dropped") {
  Node node;
  for (int i = 0; i < 100; ++i) node.controls[0]->Post(1, std::string(10'000, 'x'));
  for (int round = 0; round < 50; ++round) node.Progress(0);  // nobody reads
  CHECK(node.controls[0]->busy());
  node.controls[0]->Forget(1);
  CHECK_FALSE(node.controls[0]->busy());
}

}  // namespace
}  // namespace smddp
