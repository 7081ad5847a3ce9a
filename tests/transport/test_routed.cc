#include "inproc/hub.h"
#include "native/testing.h"
#include "transport/routed.h"

namespace smddp {
namespace {

// Ranks 0 and 1 on one host, 2 and 3 on another; one mailbox table for each kind of way.
struct Rank {
  Rank(InprocHub& near_hub, InprocHub& far_hub, int rank)
      : topology(Value(Topology::Build(rank, {"a", "a", "b", "b"}))),
        near(near_hub, rank),
        far(far_hub, rank),
        routed(topology, near, &far) {}
  const Topology topology;
  InprocTransport near, far;
  RoutedTransport routed;
};

TEST_CASE("routed: ranks of the node by one way, others by the other") {
  InprocHub near_hub(4), far_hub(4);
  Rank first(near_hub, far_hub, 0), mate(near_hub, far_hub, 1), other(near_hub, far_hub, 2);
  std::vector<int> to_mate = {1, 2, 3}, to_other = {4, 5}, mate_got(3), other_got(2);
  const Tag tag = {5, 1, 0};
  const Ticket a = Value(mate.routed.Recv(0, tag, {mate_got.data(), 12}));
  const Ticket b = Value(other.routed.Recv(0, tag, {other_got.data(), 8}));
  CHECK(mate.routed.busy());
  Value(first.routed.Send(1, tag, {to_mate.data(), 12}));
  Value(first.routed.Send(2, tag, {to_other.data(), 8}));
  CHECK(Value(mate.routed.Progress()));
  CHECK(Value(other.routed.Progress()));
  CHECK(Value(mate.routed.Test(a)));
  CHECK(Value(other.routed.Test(b)));
  CHECK(mate_got == to_mate);
  CHECK(other_got == to_other);
  CHECK(first.near.bytes_sent() == 12);
  CHECK(first.far.bytes_sent() == 8);
  CHECK(first.routed.bytes_sent() == 20);
  CHECK_FALSE(mate.routed.busy());
}

TEST_CASE("routed: tickets of the two ways are not confused") {
  InprocHub near_hub(4), far_hub(4);
  Rank first(near_hub, far_hub, 0), mate(near_hub, far_hub, 1), other(near_hub, far_hub, 2);
  int from_mate = 0, from_other = 0, value = 9;
  const Ticket near = Value(first.routed.Recv(1, {1, 0, 0}, {&from_mate, 4}));
  const Ticket far = Value(first.routed.Recv(2, {1, 0, 0}, {&from_other, 4}));
  CHECK(near != far);
  Value(other.routed.Send(0, {1, 0, 0}, {&value, 4}));
  Value(first.routed.Progress());
  CHECK_FALSE(Value(first.routed.Test(near)));
  CHECK(Value(first.routed.Test(far)));
  CHECK(from_other == 9);
}

TEST_CASE("routed: control messages of both ways are seen, in order by sender") {
  InprocHub near_hub(4), far_hub(4);
  Rank first(near_hub, far_hub, 0), mate(near_hub, far_hub, 1), other(near_hub, far_hub, 3);
  CHECK(mate.routed.Post(0, "m1").ok());
  CHECK(other.routed.Post(0, "o1").ok());
  CHECK(mate.routed.Post(0, "m2").ok());
  Value(first.routed.Progress());
  std::vector<std::string> from_mate, from_other;
  for (Message message; first.routed.Poll(&message);) {
    (message.from == 1 ? from_mate : from_other).push_back(message.bytes);
    CHECK((message.from == 1 || message.from == 3));
  }
  CHECK(from_mate == std::vector<std::string>{"m1", "m2"});
  CHECK(from_other == std::vector<std::string>{"o1"});
}

TEST_CASE("routed: on one node there is no other side; on a node of its own a rank has both") {
  InprocHub hub(2), alone(1);
  InprocTransport only(hub, 0), itself(alone, 0);
  const Topology one_node = Value(Topology::Build(0, {"a", "a"})), two_nodes = Value(Topology::Build(0, {"a", "b"}));
  RoutedTransport near(one_node, only, nullptr), far(two_nodes, itself, &only);
  for (RoutedTransport* routed : {&near, &far}) {
    CHECK_FALSE(Value(routed->Progress()));
    CHECK_FALSE(routed->busy());
    CHECK(routed->rings_doorbell());
    Message message;
    CHECK_FALSE(routed->Poll(&message));
    CHECK(routed->lost().empty());
    CHECK(routed->UnansweredNs(routed == &near ? 0 : 1) == 0);
    CHECK(routed->Abort());
  }
}

}  // namespace
}  // namespace smddp
