#include <memory>

#include "native/bus.h"
#include "runtime/health/stall_report.h"

namespace smddp {
namespace {

constexpr int64_t kSecond = 1000 * 1000000LL;

RankStatus Says(const std::string& sentence, bool in_task = false, WaitsFor waits_for = WaitsFor::kCall,
                int64_t still_ns = 10 * kSecond) {
  RankStatus status;
  status.sentence = sentence;
  status.in_task = in_task;
  status.waits_for = waits_for;
  status.still_ns = still_ns;
  return status;
}

// Rank 0 of three asks; this is what it and the others answer.
struct Job {
  explicit Job(RankStatus mine = Says("Rank 0 waits.")) : report(bus, [mine] { return mine; }) {}
  void Answers(int rank, const RankStatus& status, int64_t now_ns) {
    CHECK(report.OnMessage(rank, Encode(status), now_ns));
  }
  NotedBus bus{0, {"a", "b", "b"}};
  StallReport report;
};

TEST_CASE("stall report: all are asked, and known when they have answered or their time is up") {
  Job job;
  CHECK_FALSE(job.report.AskAll(kSecond));
  REQUIRE(job.bus.posted.size() == 2);
  RankStatus question;
  REQUIRE(Decode(job.bus.posted[0].second, &question));
  CHECK(question.asks);
  CHECK_FALSE(job.report.AskAll(kSecond + kSecond / 2));
  CHECK(job.bus.posted.size() == 2);  // not again so soon
  job.Answers(1, Says("Rank 1 computes.", false, WaitsFor::kNothing), kSecond + kSecond / 2);
  CHECK_FALSE(job.report.AskAll(kSecond + kSecond * 9 / 10));
  CHECK(job.report.AskAll(2 * kSecond + 1));  // rank 2 is silent
  const std::vector<std::string> lines = job.report.Lines({1, 2}, {});
  REQUIRE(lines.size() == 2);
  CHECK(lines[0] == "Rank 1 computes.");
  CHECK(Begins(lines[1], "Rank 2 (host b) does not answer"));
}

TEST_CASE("stall report: a question is answered, and nonsense refused") {
  Job job(Says("Rank 0 waits in x."));
  RankStatus question;
  question.asks = true;
  CHECK(job.report.OnMessage(2, Encode(question), 5));
  REQUIRE(job.bus.posted.size() == 1);
  CHECK(job.bus.posted[0].first == 2);
  RankStatus answer;
  REQUIRE(Decode(job.bus.posted[0].second, &answer));
  CHECK(answer.sentence == "Rank 0 waits in x.");
  CHECK_FALSE(job.report.OnMessage(1, "nonsense", 5));
  RankStatus odd = Says("x");
  odd.waits_for = static_cast<WaitsFor>(3);
  CHECK_FALSE(job.report.OnMessage(1, Encode(odd), 5));
}

TEST_CASE("stall report: ranks that have begun fewer steps are said so") {
  Job job;
  job.report.AskAll(kSecond);
  RankStatus behind = Says("Rank 1 computes.");
  behind.steps = {{"plan 'tape'", 3}};
  job.Answers(1, behind, kSecond);
  CHECK(
      job.report.Lines({1}, {{"plan 'tape'", 5}}) ==
      std::vector<std::string>{"Rank 1 computes. It has begun 3 of the 5 reductions of plan 'tape' that rank 0 has."});
  CHECK(job.report.Lines({1}, {{"plan 'tape'", 3}}) == std::vector<std::string>{"Rank 1 computes."});
}

TEST_CASE("stall report: suspects are those that are in no collective") {
  Job job;
  job.report.AskAll(kSecond);
  job.Answers(1, Says("moves data", true), kSecond);
  CHECK(job.report.Suspects({1, 2}) == std::set<int>{2});  // silent
  job.Answers(2, Says("computes", false), kSecond);
  CHECK(job.report.Suspects({1, 2}) == std::set<int>{2});
  CHECK(job.report.Suspects({1}).empty());
}

TEST_CASE("stall report: a deadlock is when each waits for a call of another") {
  const auto job_of = [](const RankStatus& first, const RankStatus& second) {
    auto job = std::make_unique<Job>();
    job->report.AskAll(kSecond);
    job->Answers(1, first, kSecond);
    job->Answers(2, second, kSecond);
    return job;
  };
  const RankStatus waits = Says("waits");
  CHECK(job_of(waits, waits)->report.Deadlocked(5 * kSecond));
  CHECK_FALSE(job_of(waits, waits)->report.Deadlocked(11 * kSecond));  // not for so long
  CHECK_FALSE(job_of(waits, Says("computes", false, WaitsFor::kNothing))->report.AllWait(kSecond));
  const RankStatus data = Says("moves data", true, WaitsFor::kData);
  CHECK(job_of(waits, data)->report.AllWait(5 * kSecond));
  CHECK_FALSE(job_of(waits, data)->report.Deadlocked(5 * kSecond));
  RankStatus ahead = data;
  ahead.steps = {{"plan", 2}};  // which the others have not begun
  CHECK(job_of(waits, ahead)->report.Deadlocked(5 * kSecond));
}

}  // namespace
}  // namespace smddp
