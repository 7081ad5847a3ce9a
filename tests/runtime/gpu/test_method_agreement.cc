#include "native/buckets.h"
#include "native/bus.h"
#include "runtime/gpu/method_agreement.h"

namespace smddp {
namespace {

// A rank of a job whose others are this test.
struct Rank : VerdictReader {
  explicit Rank(int rank, const Hosts& hosts = {"a", "b"}, double seconds = 60)
      : bus(rank, hosts), rounds(static_cast<int>(hosts.size())), alone(0, rank, hosts) {
    coordination = std::make_unique<Coordination>(bus, CpuCompute(), rounds, 0, 1024);
    coordination->SetReader(this);
    agreement = std::make_unique<MethodAgreement>(bus.topology(), *coordination, seconds);
  }
  ~Rank() override { alone.context->End(/*failed=*/true); }
  void OnVerdict(const Verdict& verdict) override { verdicts.push_back(verdict); }
  void Begin(const std::vector<DeviceMethod>& methods) { agreement->Begin(*alone.context, &groups, methods); }
  // What a rank other than 0 has said since, once.
  MethodRound Said() {
    const auto announcement = bus.Take<Announcement>(/*to=*/0);
    CHECK(announcement.kind == RequestKind::kDevices);
    CHECK(announcement.name == MethodAgreement::kName);
    MethodRound round;
    REQUIRE(Decode(announcement.data, &round));
    return round;
  }
  // Rank 0 hears `theirs` of rank 1; returns what it has said itself.
  MethodRound Hears(const MethodRound& theirs) {
    Announcement announcement;
    announcement.kind = RequestKind::kDevices;
    announcement.name = MethodAgreement::kName;
    announcement.data = Encode(theirs);
    verdicts.clear();
    CHECK(coordination->OnMessage(1, Encode(announcement)).ok());
    REQUIRE(verdicts.size() == 1);
    MethodRound mine;
    REQUIRE(Decode(verdicts[0].devices[0], &mine));
    told = agreement->OnRound(verdicts[0].devices);
    return mine;
  }
  NotedBus bus;
  JoinRounds rounds;
  ContextAlone alone;
  QueuedGroups groups{alone.device};
  std::unique_ptr<Coordination> coordination;
  std::unique_ptr<MethodAgreement> agreement;
  std::vector<Verdict> verdicts;
  Status told;
};

MethodRound Of(DeviceMethod method, bool started = false, const std::string& id = "", const std::string& why_not = "") {
  return {static_cast<int32_t>(method), id, started, why_not};
}
std::vector<std::string> Texts(const std::vector<MethodRound>& rounds) {
  std::vector<std::string> texts;
  for (const MethodRound& round : rounds) texts.push_back(Encode(round));
  return texts;
}

TEST_CASE("method agreement: the first member makes the id, all join, and the method is used when all have") {
  Rank rank(0);
  CHECK_FALSE(rank.agreement->begun());
  rank.Begin({DeviceMethod::kAll, DeviceMethod::kHost});
  CHECK(rank.agreement->begun());
  MethodRound said = rank.Hears(Of(DeviceMethod::kAll));
  CHECK(said.id == "id");
  CHECK_FALSE(said.started);
  CHECK(rank.groups.joined == std::vector<std::pair<int, int>>{{2, 0}});
  rank.agreement->Step();
  said = rank.Hears(Of(DeviceMethod::kAll));
  CHECK(said.started);
  CHECK_FALSE(rank.agreement->settled());
  CHECK(rank.alone.context->method() == DeviceMethod::kHost);
  rank.agreement->Step();
  rank.Hears(Of(DeviceMethod::kAll, /*started=*/true));
  CHECK(rank.told.ok());
  CHECK(rank.agreement->settled());
  CHECK(rank.alone.context->method() == DeviceMethod::kAll);
  CHECK(rank.groups.joined.size() == 1);
}

TEST_CASE("method agreement: another member joins with the id that has come, and makes none") {
  Rank rank(1);
  rank.groups.no_id = Status(Reason::kInternal, "it must not make one");
  rank.Begin({DeviceMethod::kAll});
  CHECK(rank.Said().id.empty());
  rank.agreement->Step();
  CHECK(rank.bus.posted.empty());  // the answer to its round has not come
  CHECK(rank.agreement->OnRound(Texts({Of(DeviceMethod::kAll), Of(DeviceMethod::kAll)})).ok());
  CHECK(rank.groups.joined.empty());
  CHECK(rank.agreement->OnRound(Texts({Of(DeviceMethod::kAll, true, "id"), Of(DeviceMethod::kAll)})).ok());
  CHECK(rank.groups.joined == std::vector<std::pair<int, int>>{{2, 1}});
  rank.agreement->Step();
  CHECK(rank.Said().started);
}

TEST_CASE("method agreement: one without news waits before it answers") {
  Rank rank(1);
  rank.Begin({DeviceMethod::kAll});
  rank.Said();
  rank.groups.ready = false;
  const int64_t begun_ns = NowNs();
  CHECK(rank.agreement->OnRound(Texts({Of(DeviceMethod::kAll, false, "id"), Of(DeviceMethod::kAll)})).ok());
  const Deadline most = Deadline::After(20);
  while (rank.bus.posted.empty() && !most.passed()) rank.agreement->Step();
  CHECK(NowNs() - begun_ns > 45'000'000);
  CHECK_FALSE(rank.Said().started);
}

TEST_CASE("method agreement: where one rank cannot start, all go on to the next method") {
  for (const bool here : {false, true}) {
    CAPTURE(here);
    Rank rank(1);
    rank.Begin({DeviceMethod::kAll, DeviceMethod::kNode, DeviceMethod::kHost});
    rank.Said();
    MethodRound mine = Of(DeviceMethod::kAll);
    if (here) {
      CHECK(rank.agreement->OnRound(Texts({Of(DeviceMethod::kAll, false, "no such id"), mine})).ok());
      rank.agreement->Step();
      mine = rank.Said();
      CHECK(mine.why_not == "another id");
      CHECK_FALSE(mine.started);
    }
    const MethodRound theirs = Of(DeviceMethod::kAll, false, "id", here ? "" : "no network");
    CHECK(rank.agreement->OnRound(Texts({theirs, mine})).ok());
    const MethodRound next = rank.Said();
    CHECK(next.method == static_cast<int>(DeviceMethod::kNode));
    CHECK(next.started);  // alone on its node
    CHECK(next.why_not.empty());
    // A round in which rank 0 still speaks of the method before.
    CHECK(rank.agreement->OnRound(Texts({Of(DeviceMethod::kAll, true, "", "late"), next})).ok());
    CHECK_FALSE(rank.agreement->settled());
    CHECK(rank.agreement->OnRound(Texts({Of(DeviceMethod::kNode, true), next})).ok());
    CHECK(rank.agreement->settled());
    CHECK(rank.alone.context->method() == DeviceMethod::kNode);
  }
}

TEST_CASE("method agreement: a group that has begun is ended when another rank cannot start") {
  Rank rank(0);
  rank.Begin({DeviceMethod::kAll, DeviceMethod::kHost});
  rank.Hears(Of(DeviceMethod::kAll));
  rank.groups.ready = false;
  rank.agreement->Step();
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  rank.agreement->Step();
  rank.Hears(Of(DeviceMethod::kAll, false, "", "no memory"));
  CHECK(rank.told.ok());
  CHECK(rank.groups.aborted == 1);
  CHECK(rank.groups.gone == 1);
  CHECK(rank.agreement->settled());  // through host memory
  CHECK(rank.alone.context->method() == DeviceMethod::kHost);
}

TEST_CASE("method agreement: the last method that does not start is an error that says why") {
  Rank rank(1);
  rank.Begin({DeviceMethod::kAll});
  const Status status = rank.agreement->OnRound(
      Texts({Of(DeviceMethod::kAll, true, "id"), Of(DeviceMethod::kAll, false, "", "NCCL is too new")}));
  CHECK(status.reason() == Reason::kBadState);
  CHECK(status.message() == "SMDDP_GPU_STAGE=nccl, but it does not start. Rank 1 (host b): NCCL is too new");
  Rank unreadable(1);
  unreadable.Begin({DeviceMethod::kAll});
  CHECK(Begins(unreadable.agreement->OnRound({"?", ""}).message(), "Rank 0 sent an unreadable description of its GPU"));
}

TEST_CASE("method agreement: a start that takes too long, and an id that cannot be made, are reasons") {
  Rank late(1, {"a", "b"}, /*seconds=*/0);
  late.Begin({DeviceMethod::kAll});
  late.Said();
  late.groups.ready = false;
  CHECK(late.agreement->OnRound(Texts({Of(DeviceMethod::kAll, false, "id"), Of(DeviceMethod::kAll)})).ok());
  late.agreement->Step();
  CHECK(late.Said().why_not == "NCCL has not connected the ranks within 0 s");
  Rank first(0);
  first.groups.no_id = Status(Reason::kInternal, "no network");
  first.Begin({DeviceMethod::kAll, DeviceMethod::kHost});
  CHECK(first.Hears(Of(DeviceMethod::kAll)).why_not == "no network");
  CHECK(first.agreement->settled());
  CHECK(first.groups.joined.empty());
}

TEST_CASE("method agreement: host memory needs no agreement") {
  Rank rank(1);
  rank.Begin({DeviceMethod::kHost});
  CHECK(rank.agreement->settled());
  CHECK(rank.bus.posted.empty());
}

}  // namespace
}  // namespace smddp
