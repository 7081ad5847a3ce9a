#include <cstring>

#include "native/testing.h"
#include "runtime/control/operation_id.h"
#include "runtime/named/coordinator.h"

namespace smddp {
namespace {

constexpr double kSecond = 1e9;

// The coordinator of three ranks, which is rank 0.
struct Job {
  Announcement Request(const std::string& name, int64_t elements = 500, RequestKind kind = RequestKind::kAllreduce) {
    Announcement request;
    request.kind = kind;
    request.name = name;
    request.op = ReduceOp::kSum;
    request.tensors = {{DType::kFloat32, {elements}}};
    return request;
  }
  std::optional<Verdict> Add(int rank, const Announcement& request, double now_s = 0) {
    return coordinator.Add(rank, request, static_cast<int64_t>(now_s * kSecond));
  }

  const Topology topology = Value(Topology::Build(0, {"a", "a", "b"}));
  JoinRounds join{3};
  Coordinator coordinator{topology, CpuCompute(), join, 1024};
};

TEST_CASE("coordinator: a verdict when the last rank has announced, in any order") {
  Job job;
  CHECK_FALSE(job.Add(2, job.Request("x")));
  CHECK_FALSE(job.Add(0, job.Request("x")));
  CHECK_FALSE(job.Add(0, job.Request("y")));
  const std::optional<Verdict> verdict = job.Add(1, job.Request("x"));
  REQUIRE(verdict);
  CHECK(verdict->name == "x");
  CHECK(verdict->status.ok());
  CHECK(verdict->kind == RequestKind::kAllreduce);
  CHECK(verdict->joined.empty());
  CHECK_FALSE(job.Add(1, job.Request("y")));
  CHECK(job.Add(2, job.Request("y"))->operation != verdict->operation);
}

TEST_CASE("coordinator: a rank's second announcement of a name belongs to the second request") {
  Job job;
  job.Add(0, job.Request("x"));
  job.Add(0, job.Request("x"));
  job.Add(1, job.Request("x"));
  CHECK(job.Add(2, job.Request("x")));
  job.Add(1, job.Request("x"));
  CHECK(job.Add(2, job.Request("x")));
}

TEST_CASE("coordinator: a disagreement is the same error for all") {
  Job job;
  job.Add(0, job.Request("x"));
  job.Add(1, job.Request("x", 501));
  const std::optional<Verdict> verdict = job.Add(2, job.Request("x"));
  REQUIRE(verdict);
  CHECK(verdict->status.reason() == Reason::kTensorsDiffer);
  CHECK(Has(verdict->status.message(), "rank 0 has [500], rank 1 has [501], for 'x'"));
}

TEST_CASE("coordinator: small sums are part of the verdict") {
  Job job;
  std::optional<Verdict> verdict;
  for (int rank = 0; rank < 3; ++rank) {
    Announcement request = job.Request("loss", 2);
    const float data[] = {rank + 1.0f, rank * 10.0f};
    request.data.assign(reinterpret_cast<const char*>(data), sizeof(data));
    verdict = job.Add(rank, request);
  }
  REQUIRE(verdict);
  float sums[2] = {};
  REQUIRE(verdict->data.size() == sizeof(sums));
  std::memcpy(sums, verdict->data.data(), sizeof(sums));
  CHECK(sums[0] == 6);
  CHECK(sums[1] == 30);
}

TEST_CASE("coordinator: rows of an allgather by tensor and rank") {
  Job job;
  std::optional<Verdict> verdict;
  for (int rank = 0; rank < 3; ++rank) {
    Announcement request = job.Request("rows", 0, RequestKind::kAllgather);
    request.tensors = {{DType::kFloat32, {1000 + rank, 2}}, {DType::kInt32, {2000 + rank}}};
    verdict = job.Add(rank, request);
  }
  REQUIRE(verdict);
  CHECK(verdict->dim0_of_rank == std::vector<int64_t>{1000, 1001, 1002, 2000, 2001, 2002});
}

TEST_CASE("coordinator: a rank that has joined is not waited for") {
  Job job;
  job.Add(0, job.Request("x"));
  job.Add(1, job.Request("x"));
  CHECK(job.coordinator.RankJoined().empty());
  job.join.Add(2);
  const std::vector<Verdict> verdicts = job.coordinator.RankJoined();
  REQUIRE(verdicts.size() == 1);
  CHECK(verdicts[0].joined == std::vector<int>{2});
  CHECK(verdicts[0].status.ok());
  REQUIRE(verdicts[0].request.tensors.size() == 1);
  CHECK(verdicts[0].request.tensors[0].shape == std::vector<int64_t>{500});
  job.Add(0, job.Request("rows", 5, RequestKind::kAllgather));
  const std::optional<Verdict> refused = job.Add(1, job.Request("rows", 5, RequestKind::kAllgather));
  REQUIRE(refused);
  CHECK_FALSE(refused->status.ok());  // of a rank without data there are no rows
}

TEST_CASE("coordinator: what is given up is an error for those that come later") {
  Job job;
  job.Add(1, job.Request("x"));
  CHECK_FALSE(job.coordinator.GiveUp(1, "y"));
  const std::optional<Verdict> answer = job.coordinator.GiveUp(1, "x");
  REQUIRE(answer);
  CHECK(Begins(answer->status.message(), "Rank 1 gave up a step"));
  CHECK_FALSE(job.coordinator.GiveUp(1, "x"));  // once
  job.Add(0, job.Request("x"));
  const std::optional<Verdict> verdict = job.Add(2, job.Request("x"));
  REQUIRE(verdict);
  CHECK(verdict->status.reason() == Reason::kStepGivenUp);
  CHECK(verdict->answered == std::set<int>{1});
}

TEST_CASE("coordinator: names that wait too long name the missing ranks") {
  Job job;
  job.Add(1, job.Request("x"), 1);
  CHECK(job.coordinator.Missing(static_cast<int64_t>(5 * kSecond), 10, false).empty());
  const auto now = static_cast<int64_t>(12 * kSecond);
  CHECK(job.coordinator.Missing(now, 10, false) == std::set<int>{0, 2});
  const std::vector<std::string> stalled = job.coordinator.Stalled(now, 10);
  REQUIRE(stalled.size() == 1);
  CHECK(Begins(stalled[0], "allreduce 'x' has waited for 11 s: submitted by 1 of 3 ranks, missing on rank 0, 2."));
  CHECK(job.coordinator.Stalled(now, 10).empty());  // not again so soon
  CHECK(job.coordinator.Expire(now, 60, [](const std::set<int>&) { return ""; }).empty());
  const auto expired = job.coordinator.Expire(
      now, 10, [](const std::set<int>& missing) { return " " + std::to_string(missing.size()) + " are missing."; });
  REQUIRE(expired.size() == 1);
  CHECK(expired[0].announced == std::vector<int>{1});
  CHECK(expired[0].verdict.status.reason() == Reason::kTimedOut);
  CHECK(Has(expired[0].verdict.status.message(), "2 are missing."));
  CHECK(job.coordinator.Missing(now, 0, false).empty());  // forgotten
}

TEST_CASE("coordinator: at a program's start broadcasts and allgathers are told sooner, once") {
  Job job;
  job.Add(1, job.Request("sum"), 1);
  job.Add(1, job.Request("weights", 500, RequestKind::kBroadcast), 1);
  job.Add(0, job.Request("objects", 500, RequestKind::kAllgather), 3);
  const auto told = [&](double now_s) {
    return job.coordinator.Stalled(static_cast<int64_t>(now_s * kSecond), 5, /*at_start=*/true);
  };
  CHECK(told(5.9).empty());
  const std::vector<std::string> first = told(6);
  REQUIRE(first.size() == 1);
  CHECK(Begins(first[0], "broadcast 'weights' has waited for 5 s: submitted by 1 of 3 ranks, missing on rank 0, 2."));
  const std::vector<std::string> second = told(8);
  REQUIRE(second.size() == 1);
  CHECK(Begins(second[0], "allgather 'objects' has waited for 5 s: submitted by 1 of 3 ranks, missing on rank 1, 2."));
  CHECK(told(50).empty());
  CHECK(job.coordinator.Stalled(static_cast<int64_t>(61 * kSecond), 60).size() == 2);  // all the same
  CHECK(job.coordinator.Stalled(static_cast<int64_t>(63 * kSecond), 60).size() == 1);
}

TEST_CASE("coordinator: what waits for a rank that has left is answered") {
  Job job;
  job.Add(0, job.Request("x"));
  job.Add(2, job.Request("y"));
  CHECK(job.coordinator.ExpireWaitingFor(2, "Rank 2 has left").size() == 1);
  const auto expired = job.coordinator.ExpireWaitingFor(1, "Rank 1 has left");
  REQUIRE(expired.size() == 1);
  CHECK(expired[0].verdict.name == "y");
  CHECK(expired[0].verdict.status.message() == "Rank 1 has left while allreduce 'y' waited for it.");
}

TEST_CASE("coordinator: plans get the smallest free number, and differing ones of a key are an error") {
  Job job;
  const auto plan = [&](const std::string& name, const std::string& fact) {
    Announcement request = job.Request(name, 5, RequestKind::kPlan);
    request.plan_key = "tape";
    request.facts = {fact};
    return request;
  };
  const auto number_of = [&](const std::string& name) {
    std::optional<Verdict> verdict;
    for (int rank = 0; rank < 3; ++rank) verdict = job.Add(rank, plan(name, "1 tensor"));
    return verdict->operation;
  };
  CHECK(number_of("a") == 0);
  CHECK(number_of("b") == 1);
  CHECK(job.coordinator.plan_numbers() == 2);
  job.coordinator.FreePlanNumber(0);
  CHECK(number_of("c") == 0);
  job.Add(0, plan("d", "1 tensor"));
  job.Add(1, plan("d", "1 tensor"));
  CHECK(job.coordinator.Disagreeing("tape").empty());
  job.Add(2, plan("e", "2 tensors"));
  CHECK(job.coordinator.PlanKeys() == std::set<std::string>{"tape"});
  const auto refused = job.coordinator.Disagreeing("tape");
  REQUIRE(refused.size() == 2);
  CHECK(Has(refused[0].verdict.status.message(), "rank 0 has '1 tensor', rank 2 has '2 tensors'"));
}

TEST_CASE("coordinator: names are spread over the first ranks of few nodes, plans are rank 0's") {
  std::vector<std::string> hosts;
  for (int node = 0; node < 40; ++node) hosts.insert(hosts.end(), 2, "host" + std::to_string(node));
  const Topology topology = Value(Topology::Build(5, hosts));
  std::set<int> coordinators;
  Job job;
  for (int i = 0; i < 1000; ++i) {
    coordinators.insert(CoordinatorOf(job.Request("tensor " + std::to_string(i)), topology));
  }
  CHECK(coordinators.size() == 16);
  for (const int rank : coordinators) CHECK(rank % 2 == 0);
  CHECK(CoordinatorOf(job.Request("x", 1, RequestKind::kPlan), topology) == 0);
}

}  // namespace
}  // namespace smddp
