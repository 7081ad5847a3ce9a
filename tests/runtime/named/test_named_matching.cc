#include "native/bus.h"
#include "native/ranks.h"
#include "runtime/named/named_matching.h"

namespace smddp {
namespace {

// Done at the second step.
class TwoSteps : public Task {
 public:
  Result<Progress> Step() override { return ++steps_ == 2 ? Progress::kDone : Progress::kMoved; }
  std::string Describe() const override { return "two steps"; }

 private:
  int steps_ = 0;
};

struct NotedVerdicts : VerdictReader {
  void OnVerdict(const Verdict& verdict) override { names.push_back(verdict.name); }
  std::vector<std::string> names;
};

// Rank 1 of three, one on each node.
struct Rank {
  Rank() {
    coordination.SetReader(&named);
    named.SetReaders(&devices, &joined);
  }
  // A request whose task takes two steps; answers are noted.
  NamedRequest Request(const std::string& name, RequestKind kind = RequestKind::kBroadcast) {
    NamedRequest request;
    request.announcement.kind = kind;
    request.announcement.name = name;
    request.begin = [this, name](const Verdict&) -> Result<TaskPtr> {
      begun.push_back(name);
      if (!refuse.ok()) return refuse;
      return TaskPtr(std::make_unique<TwoSteps>());
    };
    request.done = [this, name](const Status& status) { answers.emplace_back(name, status); };
    return request;
  }
  Verdict VerdictOn(const std::string& name, const Status& status = Status::Ok()) {
    Verdict verdict;
    verdict.kind = RequestKind::kBroadcast;
    verdict.name = name;
    verdict.status = status;
    return verdict;
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    named.Describe(&names);
    return names;
  }
  NotedBus bus{1, {"a", "b", "c"}};
  JoinRounds rounds{3};
  const std::unique_ptr<FabricParts> parts = FabricOf(1, {"a", "b", "c"});
  const Verifier verifier{parts->fabric(), false};
  const RequestBuilder requests{parts->fabric(), verifier};
  Coordination coordination{bus, CpuCompute(), rounds, 0, 1024};
  NamedMatching named{bus, rounds, requests, coordination};
  NotedVerdicts devices, joined;
  std::vector<std::string> begun;
  std::vector<std::pair<std::string, Status>> answers;
  Status refuse;
};

// Names whose coordinator is that rank.
std::string NameOn(int rank, int which = 0) {
  const Topology topology = Value(Topology::Build(0, {"a", "b", "c"}));
  for (int i = 0;; ++i) {
    Announcement request;
    request.name = "t" + std::to_string(i);
    if (CoordinatorOf(request, topology) == rank && which-- == 0) return request.name;
  }
}

TEST_CASE("named matching: a request is announced, begins with its verdict, and is answered when its task is done") {
  Rank rank;
  const std::string name = NameOn(2);
  rank.named.Submit(rank.Request(name));
  REQUIRE(rank.bus.posted.size() == 1);
  CHECK(rank.bus.posted[0].first == 2);
  CHECK(rank.named.own() == 1);
  CHECK(rank.named.waiting());
  CHECK(rank.named.Waiting(name) == rank.named.Oldest());
  CHECK(rank.Names() == std::vector<std::string>{"broadcast '" + name + "'"});
  CHECK(rank.begun.empty());
  CHECK(rank.named.OnMessage(2, Encode(rank.VerdictOn(name))).ok());
  CHECK(rank.begun == std::vector<std::string>{name});
  CHECK_FALSE(rank.named.waiting());
  REQUIRE(rank.bus.tasks.all().size() == 1);
  CHECK(rank.bus.tasks.all().front().name == "broadcast '" + name + "'");
  CHECK(rank.answers.empty());
  for (int step = 0; step < 3; ++step) Value(rank.bus.tasks.Step());
  REQUIRE(rank.answers.size() == 1);
  CHECK(rank.answers[0].second.ok());
  CHECK(rank.named.own() == 0);
  CHECK(rank.named.done() == 1);
}

TEST_CASE(
    "named matching: requests of one name are answered in their order, and the second one is called a duplicate") {
  Rank rank;
  const std::string name = NameOn(2);
  for (int i = 0; i < 2; ++i) rank.named.Submit(rank.Request(name));
  Announcement first, second;
  REQUIRE(Decode(rank.bus.posted[0].second, &first));
  REQUIRE(Decode(rank.bus.posted[1].second, &second));
  CHECK_FALSE(first.duplicate);
  CHECK(second.duplicate);
  CHECK(rank.named.OnMessage(2, Encode(rank.VerdictOn(name, Status(Reason::kDisagreement, "no")))).ok());
  REQUIRE(rank.answers.size() == 1);
  CHECK(rank.answers[0].second.message() == "no");
  CHECK(rank.begun.empty());
  CHECK(rank.named.own() == 1);
  CHECK(rank.named.Waiting(name) != nullptr);
  CHECK(rank.bus.failure().ok());
}

TEST_CASE("named matching: what cannot begin on this rank alone ends the session") {
  Rank rank;
  const std::string name = NameOn(2);
  rank.refuse = Status(Reason::kNoResources, "no memory");
  rank.named.Submit(rank.Request(name));
  CHECK(rank.named.OnMessage(2, Encode(rank.VerdictOn(name))).ok());
  CHECK(rank.answers[0].second.message() == "no memory");
  CHECK(rank.bus.failure().message() == "no memory");
  CHECK(rank.bus.told);
  rank.named.Submit(rank.Request("later"));
  CHECK(rank.answers[1].second.message() == "no memory");
  CHECK(rank.named.own() == 0);
}

TEST_CASE("named matching: verdicts on devices, and on what only the others asked for, have readers of their own") {
  Rank rank;
  Verdict verdict = rank.VerdictOn("gpus");
  verdict.kind = RequestKind::kDevices;
  verdict.devices = {"", "", ""};
  CHECK(rank.named.OnMessage(0, Encode(verdict)).ok());
  CHECK(rank.devices.names == std::vector<std::string>{"gpus"});
  verdict = rank.VerdictOn("theirs");
  verdict.kind = RequestKind::kAllreduce;
  verdict.request.kind = RequestKind::kAllreduce;
  verdict.joined = {0, 1};
  rank.named.OnVerdict(verdict);
  CHECK(rank.joined.names == std::vector<std::string>{"theirs"});
  verdict.status = Status(Reason::kDisagreement, "of no concern");
  rank.named.OnVerdict(verdict);
  verdict.status = Status::Ok();
  verdict.joined = {0};
  rank.named.OnVerdict(verdict);  // nothing of that name waits here
  CHECK(rank.joined.names.size() == 1);
  CHECK(rank.begun.empty());
}

TEST_CASE("named matching: what waits for a coordinator that has left is answered, and nothing else") {
  Rank rank;
  rank.named.Submit(rank.Request(NameOn(2)));
  rank.named.Submit(rank.Request(NameOn(0)));
  CHECK(rank.named.AfterDeparture(2, "Rank 2 has left").ok());
  REQUIRE(rank.answers.size() == 1);
  CHECK(rank.answers[0].first == NameOn(2));
  CHECK(rank.answers[0].second.message() == "Rank 2 has left while broadcast '" + NameOn(2) + "' waited for it.");
  rank.named.OnFailure(Status(Reason::kTimedOut, "too late"));
  REQUIRE(rank.answers.size() == 2);
  CHECK(rank.answers[1].second.message() == "too late");
  CHECK(rank.named.OldestNs() == Component::kNever);
}

TEST_CASE("named matching: agreements on plans are no requests of the program") {
  Rank rank;
  rank.named.Submit(rank.Request("plan", RequestKind::kPlan));
  CHECK(rank.named.own() == 0);
  CHECK_FALSE(rank.named.waiting());
  CHECK(rank.named.Oldest() == nullptr);
  CHECK(rank.Names().empty());
  CHECK(rank.named.Waiting("plan") != nullptr);
}

TEST_CASE("named matching: unreadable verdicts and unknown numbers are refused, what does not fuse ends the session") {
  Rank rank;
  CHECK_FALSE(rank.named.OnMessage(2, "?").ok());
  Verdict numbered = rank.VerdictOn("");
  numbered.number = 5;
  numbered.told = true;
  CHECK_FALSE(rank.named.OnMessage(2, Encode(numbered)).ok());
  rank.named.Submit(rank.Request(NameOn(2, 0)));
  rank.named.Submit(rank.Request(NameOn(2, 1)));
  Verdict fused = rank.VerdictOn(NameOn(2, 0));
  fused.kind = RequestKind::kAllreduce;
  fused.fused.resize(1);
  fused.fused[0].name = NameOn(2, 1);
  CHECK(rank.named.OnMessage(2, Encode(fused)).ok());
  CHECK(rank.answers.size() == 2);
  CHECK(Begins(rank.bus.failure().message(), "Allreduces to be reduced together with"));
}

}  // namespace
}  // namespace smddp
