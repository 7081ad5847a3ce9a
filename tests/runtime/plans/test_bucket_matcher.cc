#include <atomic>
#include <thread>

#include "native/members.h"
#include "native/ranks.h"
#include "runtime/plans/bucket_matcher.h"

namespace smddp {
namespace {

TEST_CASE("step times: the time in which gradients are reduced, and of that the time in which the program waits") {
  StepTimes times;
  CHECK(times.Arrived(100));
  CHECK_FALSE(times.Arrived(130));
  CHECK(times.Ended(true, 150));
  CHECK(times.steps() == 1);
  CHECK(times.reducing_ns() == 50);
  CHECK(times.exposed_ns() == 20);
}

TEST_CASE("step times: a step with a gap in it") {
  StepTimes times;
  CHECK(times.Arrived(100));
  CHECK_FALSE(times.Ended(false, 120));  // the program computes the next gradient
  CHECK_FALSE(times.Ended(false, 125));
  CHECK_FALSE(times.Arrived(200));  // of the same step
  CHECK(times.Ended(true, 230));
  CHECK(times.steps() == 1);
  CHECK(times.reducing_ns() == 50);
  CHECK(times.exposed_ns() == 30);
  CHECK(times.Arrived(300));
}

TEST_CASE("bucket matcher: gradients in any order are reduced, and one that does not fit is an error") {
  std::atomic<int> through{0};
  AsRanks({"a", "a"}, [&](int rank, Session& session) {
    PlanSpec spec;
    spec.key = "tape";
    spec.op = ReduceOp::kSum;
    const std::vector<int64_t> elements = {700, 1, 9000, 0, 40};
    for (const int64_t each : elements) spec.tensors.push_back({DType::kFloat32, {each}});
    const int plan = Value(session.RegisterPlan(spec));
    for (uint64_t run = 1; run <= 4; ++run) {
      std::vector<std::vector<float>> data;
      std::vector<std::future<Status>> waiting;
      for (size_t i = 0; i < elements.size(); ++i) data.push_back(ValuesOf(rank + static_cast<int>(i), elements[i]));
      for (size_t n = 0; n < elements.size(); ++n) {
        const size_t i = (n * 2 + rank + run) % elements.size();  // another order by rank and step
        auto done = std::make_shared<std::promise<Status>>();
        waiting.push_back(done->get_future());
        session.ReducePlanned({plan, static_cast<int>(i), 0, true, run},
                              {DType::kFloat32, {elements[i]}, data[i].data(), data[i].data()},
                              [done](const Status& status) { done->set_value(status); });
      }
      for (auto& each : waiting) CHECK(each.get().ok());
      for (size_t i = 0; i < elements.size(); ++i) {
        std::vector<float> sum = ValuesOf(static_cast<int>(i), elements[i]);
        const std::vector<float> theirs = ValuesOf(1 + static_cast<int>(i), elements[i]);
        for (size_t k = 0; k < sum.size(); ++k) sum[k] += theirs[k];
        CHECK((data[i] == sum));
      }
    }
    const SessionStats stats = session.diagnostics().Stats();
    CHECK(stats.steps == 4);
    CHECK(stats.plans == 1);
    // The error ends the session: not before the other rank has its sums.
    for (++through; through < 2;) std::this_thread::yield();
    float one = 0;
    const Status status = Wait([&](DoneCallback done) {
      session.ReducePlanned({plan, 1, 0, true, 5}, {DType::kFloat32, {2}, &one, &one}, done);
    });
    CHECK_FALSE(status.ok());
  });
}

}  // namespace
}  // namespace smddp
