#include "native/bus.h"
#include "native/ranks.h"
#include "runtime/named/coordination.h"

namespace smddp {
namespace {

Announcement Barrier(const std::string& name) {
  Announcement announcement;
  announcement.kind = RequestKind::kBarrier;
  announcement.name = name;
  return announcement;
}
Announcement Allreduce(const std::string& name, int64_t elements) {
  Announcement announcement = Barrier(name);
  announcement.kind = RequestKind::kAllreduce;
  announcement.op = ReduceOp::kSum;
  announcement.tensors = {{DType::kFloat32, {elements}}};
  return announcement;
}

struct Rank : VerdictReader {
  explicit Rank(int rank, int64_t fused_bytes = 0) : bus(rank, {"a", "b", "c"}), rounds(3) {
    coordination = std::make_unique<Coordination>(bus, CpuCompute(), rounds, fused_bytes, 1024);
    coordination->SetReader(this);
  }
  void OnVerdict(const Verdict& verdict) override { own.push_back(verdict); }
  // Ranks and names of the verdicts that were sent to others.
  std::vector<std::pair<int, std::string>> Sent() {
    std::vector<std::pair<int, std::string>> sent;
    for (const auto& [to, message] : bus.posted) {
      Verdict verdict;
      if (Decode(message, &verdict)) sent.emplace_back(to, verdict.name);
    }
    bus.posted.clear();
    return sent;
  }
  NotedBus bus;
  JoinRounds rounds;
  std::unique_ptr<Coordination> coordination;
  std::vector<Verdict> own;
};

using Sent = std::vector<std::pair<int, std::string>>;

// A name whose coordinator is that rank.
std::string NameOn(int rank, const Announcement& like, const std::string& stem = "name") {
  const Topology topology = Value(Topology::Build(0, {"a", "b", "c"}));
  for (int i = 0;; ++i) {
    Announcement named = like;
    named.name = stem + std::to_string(i);
    if (CoordinatorOf(named, topology) == rank) return named.name;
  }
}

TEST_CASE("coordination: an announcement goes to the coordinator of its name, and nowhere else") {
  Rank rank(1);
  const Announcement far = Barrier(NameOn(2, Barrier("")));
  rank.coordination->Announce(far);
  CHECK(rank.bus.Take<Announcement>(/*to=*/2).name == far.name);
  rank.coordination->Announce(Barrier(NameOn(1, Barrier(""))));
  CHECK(rank.bus.posted.empty());  // its own
}

TEST_CASE("coordination: the verdict goes to all ranks when the last one has announced") {
  Rank rank(1);
  const Announcement request = Barrier(NameOn(1, Barrier("")));
  CHECK(rank.coordination->OnMessage(0, Encode(request)).ok());
  rank.coordination->Announce(request);
  CHECK(rank.Sent().empty());
  CHECK(rank.coordination->OnMessage(2, Encode(request)).ok());
  CHECK(rank.Sent() == Sent{{0, request.name}, {2, request.name}});
  REQUIRE(rank.own.size() == 1);
  CHECK(rank.own[0].status.ok());
}

TEST_CASE("coordination: what is no announcement is refused, and so is a number that was never given") {
  Rank rank(1);
  Announcement numbered = Barrier("x");
  numbered.number = 77;
  for (const std::string& message : {std::string("?"), Encode(HeartbeatMessage()), Encode(numbered)}) {
    CHECK(Begins(rank.coordination->OnMessage(2, message).message(), "Rank 2 sent an invalid control message"));
  }
  CHECK(rank.bus.posted.empty());
}

TEST_CASE("coordination: a request that a rank gives up is an error there at once, and for the others when they come") {
  Rank rank(1);
  const Announcement request = Barrier(NameOn(1, Barrier("")));
  RequestGivenUp given_up;
  given_up.name = request.name;
  CHECK(rank.coordination->OnMessage(0, Encode(request)).ok());
  CHECK(rank.coordination->OnMessage(0, Encode(given_up)).ok());
  CHECK(rank.Sent() == Sent{{0, request.name}});
  CHECK(rank.coordination->OnMessage(2, Encode(request)).ok());
  rank.coordination->Announce(request);
  CHECK(rank.Sent() == Sent{{2, request.name}});  // not to rank 0 again
  REQUIRE(rank.own.size() == 1);
  CHECK(rank.own[0].status.reason() == Reason::kStepGivenUp);
  RequestGivenUp elsewhere;
  elsewhere.name = NameOn(2, Barrier(""));
  rank.coordination->GiveUp(elsewhere);
  REQUIRE(rank.bus.posted.size() == 1);
  CHECK(rank.bus.posted[0].first == 2);
}

TEST_CASE("coordination: who waits for a rank that has left, or only for one that has joined, is answered") {
  Rank rank(1);
  const Announcement left = Allreduce(NameOn(1, Allreduce("", 500), "left"), 500);
  CHECK(rank.coordination->OnMessage(0, Encode(left)).ok());
  CHECK(rank.coordination->AfterDeparture(2, "Rank 2 has left").ok());
  CHECK(rank.Sent() == Sent{{0, left.name}});
  CHECK(rank.own.empty());  // it has not asked
  const Announcement joined = Allreduce(NameOn(1, Allreduce("", 500), "joined"), 500);
  CHECK(rank.coordination->OnMessage(0, Encode(joined)).ok());
  rank.coordination->Announce(joined);
  rank.coordination->OnJoin();
  CHECK(rank.own.empty());
  rank.rounds.Add(2);
  rank.coordination->OnJoin();
  REQUIRE(rank.own.size() == 1);
  CHECK(rank.own[0].joined == std::vector<int>{2});
}

TEST_CASE("coordination: small allreduces leave together, but none of a name before an earlier one of it") {
  Rank rank(1, /*fused_bytes=*/1 << 20);
  std::vector<Announcement> requests;
  for (int i = 0; i < 3; ++i) {
    requests.push_back(Allreduce(NameOn(1, Allreduce("", 500), "fused" + std::to_string(i) + "."), 500));
  }
  const auto announce = [&](const Announcement& request) {
    for (const int other : {0, 2}) CHECK(rank.coordination->OnMessage(other, Encode(request)).ok());
    rank.coordination->Announce(request);
  };
  for (const Announcement& request : requests) announce(request);
  CHECK(rank.own.empty());
  rank.coordination->Step();
  REQUIRE(rank.own.size() == 1);
  CHECK(rank.own[0].name == requests[0].name);
  REQUIRE(rank.own[0].fused.size() == 2);
  CHECK(rank.own[0].fused[1].name == requests[2].name);
  rank.own.clear();
  announce(requests[1]);
  announce(Barrier(requests[1].name));  // what follows under its name is sent at once
  REQUIRE(rank.own.size() == 2);
  CHECK(rank.own[0].kind == RequestKind::kAllreduce);
  CHECK(rank.own[1].kind == RequestKind::kBarrier);
}

}  // namespace
}  // namespace smddp
