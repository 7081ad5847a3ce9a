#include "native/bus.h"
#include "native/members.h"
#include "native/ranks.h"
#include "runtime/plans/plan_retirement.h"

namespace smddp {
namespace {

// As plan_retirement.cc sends it.
struct Message {
  static constexpr ControlType kType = ControlType::kPlanRetirement;
  enum class Kind : uint8_t { kAsk, kIdle, kBusy, kForget, kKeep };
  Kind kind = Kind::kAsk;
  int32_t number = 0;
  int64_t steps = 0;
  SMDDP_FIELDS(kind, number, steps);
};
using Kind = Message::Kind;

PlanSpec SpecOf(const std::string& key) {
  PlanSpec spec;
  spec.key = key;
  spec.op = ReduceOp::kSum;
  spec.tensors = {{DType::kFloat32, {6}}};
  return spec;
}

// Rank 1 of two, which takes part in plans that rank 0 numbers.
struct Rank {
  Rank() {
    coordination.SetReader(&named);
    named.SetReaders(&device_paths, nullptr);
  }
  // A plan that the ranks have agreed on under `number`.
  PlannedTensor Agree(const std::string& key, int number) {
    PlannedTensor where;
    where.plan = registry.NumberOf(SpecOf(key));
    where.run = 1;
    Plan* const plan = planned.Announce(where);
    REQUIRE(plan != nullptr);
    Verdict verdict;
    verdict.kind = RequestKind::kPlan;
    verdict.name = plan->name();
    verdict.operation = static_cast<uint32_t>(number);
    named.OnVerdict(verdict);
    while (!bus.tasks.empty()) Value(bus.tasks.Step());
    bus.posted.clear();
    return where;
  }
  Status Hear(Kind kind, int number, int from = 0) {
    return retirement.OnMessage(from, Encode(Message{kind, number, 0}));
  }
  // What it has answered rank 0.
  std::vector<std::pair<Kind, int64_t>> Answers() {
    std::vector<std::pair<Kind, int64_t>> answers;
    for (const auto& [to, bytes] : bus.posted) {
      Message message;
      CHECK(to == 0);
      if (Decode(bytes, &message)) answers.emplace_back(message.kind, message.steps);
    }
    bus.posted.clear();
    return answers;
  }
  bool Arrive(const PlannedTensor& where) {
    return planned.Reduce(where, {DType::kFloat32, {6}, data.data(), data.data()}, [](const Status&) {});
  }
  NotedBus bus{1, {"a", "b"}};
  JoinRounds rounds{2};
  Env env;
  PlanRegistry registry;
  Devices devices;
  std::vector<float> data = ValuesOf(1, 6);
  std::vector<KeptArrival> resumed;
  const std::unique_ptr<FabricParts> parts = FabricOf(1, {"a", "b"});
  const Verifier verifier{parts->fabric(), false};
  const RequestBuilder requests{parts->fabric(), verifier};
  Coordination coordination{bus, CpuCompute(), rounds, 0, 1024};
  NamedMatching named{bus, rounds, requests, coordination};
  DevicePaths device_paths{bus, parts->fabric(), coordination, devices, env};
  PlannedReductions planned{bus, parts->fabric(), env, registry, named, device_paths, verifier};
  PlanRetirement retirement{bus,          planned,
                            device_paths, coordination.coordinator(),
                            rounds,       [this](KeptArrival kept) { resumed.push_back(std::move(kept)); }};
};

std::vector<std::pair<Kind, int64_t>> One(Kind kind, int64_t steps = 0) { return {{kind, steps}}; }

TEST_CASE("plan retirement: an unused plan is idle, and what arrives for it waits for rank 0's decision") {
  for (const bool forget : {true, false}) {
    Rank rank;
    rank.Agree("other", 4);
    const PlannedTensor where = rank.Agree("tape", 7);
    CHECK(rank.Hear(Kind::kAsk, 7).ok());
    CHECK(rank.Answers() == One(Kind::kIdle));
    rank.Arrive(where);
    CHECK(rank.planned.plans().Numbered(7)->steps().begun() == 0);
    CHECK(rank.Hear(forget ? Kind::kForget : Kind::kKeep, 7).ok());
    CHECK((rank.planned.plans().Numbered(7) == nullptr) == forget);
    CHECK(rank.planned.plans().Numbered(4) != nullptr);
    REQUIRE(rank.resumed.size() == 1);
    CHECK(rank.resumed[0].where.plan == where.plan);
    CHECK(rank.resumed[0].tensor.input == rank.data.data());
  }
}

TEST_CASE("plan retirement: a plan that is in use, unknown or about to be joined is busy") {
  Rank rank;
  const PlannedTensor where = rank.Agree("tape", 7);
  CHECK(rank.Hear(Kind::kAsk, 8).ok());
  CHECK(rank.Answers() == One(Kind::kBusy));
  rank.Arrive(where);
  CHECK(rank.planned.plans().Numbered(7)->steps().begun() == 1);
  rank.bus.posted.clear();
  CHECK(rank.Hear(Kind::kAsk, 7).ok());
  CHECK(rank.Answers() == One(Kind::kBusy));
  Rank joins;
  joins.Agree("tape", 7);
  joins.rounds.Add(0);
  CHECK(joins.Hear(Kind::kAsk, 7).ok());
  CHECK(joins.Answers() == One(Kind::kBusy));
}

TEST_CASE("plan retirement: what no rank of this version sends is refused") {
  Rank rank;
  rank.Agree("tape", 7);
  const auto refused = [](const Status& status) { return Has(status.message(), "sent an invalid control message"); };
  CHECK(refused(rank.Hear(Kind::kForget, 7)));  // it was not asked
  CHECK(refused(rank.Hear(Kind::kIdle, 7)));    // an answer, to a rank that asks nothing
  CHECK(refused(rank.Hear(Kind::kAsk, 7, /*from=*/1)));
  CHECK(refused(rank.retirement.OnMessage(0, "?")));
  CHECK(rank.Hear(Kind::kKeep, 7).ok());
  CHECK(rank.Hear(Kind::kAsk, 7).ok());
  CHECK(refused(rank.Hear(Kind::kAsk, 7)));  // twice
  CHECK(rank.planned.plans().Numbered(7) != nullptr);
}

TEST_CASE("plan retirement: when rank 0 leaves, the plan stays, and what was kept goes on") {
  Rank rank;
  const PlannedTensor where = rank.Agree("tape", 7);
  REQUIRE(rank.Hear(Kind::kAsk, 7).ok());
  rank.Arrive(where);
  rank.retirement.OnDeparture(0);
  CHECK(rank.resumed.size() == 1);
  CHECK(rank.planned.plans().Numbered(7) != nullptr);
}

TEST_CASE("plan retirement: a program that makes ever more plans keeps the last ones, and all sums are right") {
  constexpr int kPlans = 900;
  AsRanks({"a", "b"}, [](int rank, Session& session) {
    std::vector<int> numbers;
    uint64_t run = 0;
    const auto reduce = [&](int which) {
      std::vector<float> data = ValuesOf(rank + which, 6);
      const Status status = Wait([&](DoneCallback done) {
        session.ReducePlanned({numbers[which], 0, 0, true, ++run}, {DType::kFloat32, {6}, data.data(), data.data()},
                              done);
      });
      REQUIRE_MESSAGE(status.ok(), status.message());
      std::vector<float> sum = ValuesOf(which, 6);
      const std::vector<float> theirs = ValuesOf(1 + which, 6);
      for (int i = 0; i < 6; ++i) sum[i] += theirs[i];
      REQUIRE(data == sum);
    };
    for (int which = 0; which < kPlans; ++which) {
      numbers.push_back(Value(session.RegisterPlan(SpecOf("model " + std::to_string(which)))));
      reduce(which);
    }
    const auto known = [&session] { return session.diagnostics().Stats().plans; };
    const Deadline deadline = Deadline::After(20);  // the ranks may still be asking one another about the last ones
    while (known() > 768 && !deadline.passed()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    CHECK(known() >= 256);
    CHECK(known() <= 768);
    reduce(0);  // forgotten, and announced again
    reduce(kPlans - 1);
  });
}

}  // namespace
}  // namespace smddp
