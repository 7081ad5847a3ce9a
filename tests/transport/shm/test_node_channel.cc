#include <cstring>
#include <functional>
#include <memory>

#include "native/testing.h"
#include "transport/shm/node_channel.h"
#include "transport/shm/segment.h"

namespace smddp {
namespace {

// Two ranks of a node, stepped by this thread.
struct Node {
  Node() : layout(2, 2, 4096) {
    for (int i = 0; i < 2; ++i) segments.push_back(Value(Segment::Private(layout.total_bytes)));
    const std::vector<std::byte*> data = {segments[0]->data(), segments[1]->data()};
    for (int i = 0; i < 2; ++i) channels.push_back(std::make_unique<NodeChannel>(i, layout, data));
  }
  NodeChannel& operator[](int i) { return *channels[i]; }

  const NodeLayout layout;
  std::vector<std::unique_ptr<Segment>> segments;
  std::vector<std::unique_ptr<NodeChannel>> channels;
};

std::string Text(const Loan& loan) {
  return std::string(reinterpret_cast<const char*>(loan.memory.data), loan.memory.size);
}
void Send(NodeChannel* from, const Tag& tag, const std::string& text, Slot* slot) {
  REQUIRE(from->Reserve(Pool::kContribution, slot));
  std::memcpy(slot->memory.data, text.data(), text.size());
  from->Publish(*slot, tag, text.size(), {1 - from->position()});
}

TEST_CASE("node channel: a slot is lent to its reader, and free when all have given it back") {
  Node node;
  Slot slot;
  const Tag tag = {5, 1, 2};
  Send(&node[0], tag, "contribution", &slot);
  Loan loan;
  CHECK_FALSE(node[1].Has(0, tag));  // not before Progress
  CHECK(Value(node[1].Progress()));
  CHECK(node[1].Has(0, tag));
  CHECK_FALSE(node[1].Take(0, {5, 1, 3}, &loan));
  CHECK_FALSE(node[1].Take(0, {6, 1, 2}, &loan));
  REQUIRE(node[1].Take(0, tag, &loan));
  CHECK(Text(loan) == "contribution");
  CHECK(loan.peer == 0);
  CHECK_FALSE(node[1].Has(0, tag));
  const int index = slot.index;
  CHECK(node[0].holders(index) == 2);
  node[0].Release(&slot);
  CHECK_FALSE(slot.held());
  CHECK(node[0].holders(index) == 1);
  node[1].Return(loan);
  CHECK(node[0].holders(index) == 0);
  CHECK(node[0].bytes_published() == 12);
}

TEST_CASE("node channel: a pool has eight slots, and one that is given back can be had again") {
  Node node;
  std::vector<Slot> slots(NodeLayout::kSlotsPerPool);
  for (Slot& slot : slots) CHECK(node[0].Reserve(Pool::kContribution, &slot));
  Slot more;
  CHECK_FALSE(node[0].Reserve(Pool::kContribution, &more));
  CHECK(node[0].Reserve(Pool::kControl, &more));  // another pool
  node[0].Release(&slots[3]);
  Slot again;
  CHECK(node[0].Reserve(Pool::kContribution, &again));
}

TEST_CASE("node channel: equal tags are taken in the order of sending") {
  Node node;
  Slot slots[3];
  for (int i = 0; i < 3; ++i) Send(&node[1], {1, 0, 0}, "number " + std::to_string(i), &slots[i]);
  Value(node[0].Progress());
  for (int i = 0; i < 3; ++i) {
    Loan loan;
    REQUIRE(node[0].Take(1, {1, 0, 0}, &loan));
    CHECK(Text(loan) == "number " + std::to_string(i));
    node[0].Return(loan);
  }
}

TEST_CASE("node channel: what is not taken can be copied away, so that its slot is free") {
  Node node;
  Slot slot;
  Send(&node[0], {1, 0, 0}, "early", &slot);
  const int index = slot.index;
  node[0].Release(&slot);
  Value(node[1].Progress());
  CHECK(node[0].holders(index) == 1);
  CHECK(node[1].Evacuate());
  CHECK(node[0].holders(index) == 0);
  CHECK_FALSE(node[1].Evacuate());
  std::memset(node.layout.slot(node.segments[0]->data(), index), 'x', 5);
  Loan loan;
  REQUIRE(node[1].Take(0, {1, 0, 0}, &loan));
  CHECK(Text(loan) == "early");
  node[1].Return(loan);
}

TEST_CASE("node channel: values that no correct rank writes are an error") {
  const std::vector<std::function<void(NoteRing*)>> damages = {
      [](NoteRing* ring) { ring->written = 1000; },
      [](NoteRing* ring) { ring->notes[0].slot = 999, ring->written = 1; },
      [](NoteRing* ring) { ring->notes[0].bytes = 1 << 30, ring->written = 1; },
  };
  for (size_t i = 0; i < damages.size(); ++i) {
    CAPTURE(i);
    Node node;
    damages[i](node.layout.inbox(node.segments[1]->data(), 0));
    CHECK_FALSE(node[1].Progress().ok());
  }
}

TEST_CASE("node channel: beats are seen by the others") {
  Node node;
  CHECK(node[1].BeatOf(0) == 0);
  node[0].Beat(77);
  CHECK(node[1].BeatOf(0) == 77);
  CHECK(node[0].BeatOf(1) == 0);
}

}  // namespace
}  // namespace smddp
