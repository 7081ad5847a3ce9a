#include "native/bus.h"
#include "runtime/control/component.h"

namespace smddp {
namespace {

TEST_CASE("component: others are all ranks but this one") {
  NotedBus bus(1, {"a", "a", "b"});
  CHECK(OtherRanks(bus.topology()) == std::set<int>{0, 2});
  bus.PostToOthers("hello");
  CHECK(bus.posted == std::vector<std::pair<int, std::string>>{{0, "hello"}, {2, "hello"}});
}

TEST_CASE("component: what it does not know ends the session") {
  Component plain;
  const Status status = plain.OnMessage(2, "?");
  CHECK(status.reason() == Reason::kInternal);
  CHECK(status.message() == "A message of rank 2 has an unknown type.");
  CHECK(plain.AfterDeparture(1, "Rank 1 has left").ok());
  CHECK(plain.OldestNs() == Component::kNever);
  CHECK_FALSE(plain.waiting());
}

TEST_CASE("component: the sender of what cannot be is named by the number that users know") {
  const Topology set = Value(Topology::Build(0, {"a", "b"}, {2, 5}));
  CHECK(Begins(Refused(set, 1).message(), "Rank 5 sent an invalid control message."));
  CHECK(Has(Refused(set, 1, "sent nonsense").message(), "Rank 5 sent nonsense. Do all ranks run the same version"));
}

TEST_CASE("component: a failure is told to the others, unless they have it") {
  NotedBus bus(0, {"a", "a"});
  bus.FailHere(Status(Reason::kPeerLost, "lost"));
  CHECK_FALSE(bus.told);
  bus.Fail(Status(Reason::kInternal, "second"));
  CHECK(bus.told);
  CHECK(bus.failure().message() == "lost");
}

}  // namespace
}  // namespace smddp
