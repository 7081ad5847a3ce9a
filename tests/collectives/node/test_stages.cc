// The stages of an allreduce inside a node and between nodes, by whole jobs in small chunks.
#include "native/members.h"
#include "native/ranks.h"

namespace smddp {
namespace {

TEST_CASE("stages: sums of all lengths in all layouts are exact, and averages divide them") {
  for (const Hosts& hosts : Layouts()) {
    const int size = static_cast<int>(hosts.size());
    for (const int64_t elements : {300, 2048, 2049, 30'011}) {  // more than fits into a message; chunks of 2048
      AsRanks(hosts, [&](int rank, Session& session) {
        std::vector<float> data = ValuesOf(rank, elements);
        const TensorRef tensor = {DType::kFloat32, {elements}, data.data(), data.data()};
        const auto reduce = [&](const char* name, ReduceOp op) {
          return Wait(
              [&](DoneCallback done) { session.Submit({RequestKind::kAllreduce, name, {tensor}, {op}}, done); });
        };
        CHECK(reduce("sum", ReduceOp::kSum).ok());
        CHECK((data == SumOf(size, elements)));
        const std::vector<float> average = ValuesOf(3, elements);
        data = average;
        CHECK(reduce("average", ReduceOp::kAverage).ok());
        CHECK((data == average));
      });
    }
  }
}

TEST_CASE("stages: many allreduces are under way at once, with few slots") {
  const Hosts hosts = {"a", "a", "b", "b"};
  AsRanks(hosts, [&](int rank, Session& session) {
    constexpr int kCount = 12;
    constexpr int64_t kElements = 20'000;
    std::vector<std::vector<float>> data;
    std::vector<std::future<Status>> waiting;
    for (int i = 0; i < kCount; ++i) data.push_back(ValuesOf(rank + i, kElements));
    for (int n = 0; n < kCount; ++n) {
      const int i = rank % 2 == 0 ? n : kCount - 1 - n;  // in another order on every second rank
      auto done = std::make_shared<std::promise<Status>>();
      waiting.push_back(done->get_future());
      const TensorRef tensor = {DType::kFloat32, {kElements}, data[i].data(), data[i].data()};
      session.Submit({RequestKind::kAllreduce, std::to_string(i), {tensor}, {ReduceOp::kMax}},
                     [done](const Status& status) { done->set_value(status); });
    }
    for (auto& each : waiting) CHECK(each.get().ok());
    for (int i = 0; i < kCount; ++i) {
      std::vector<float> most = ValuesOf(i, kElements);
      for (int other = 1; other < 4; ++other) {
        const std::vector<float> theirs = ValuesOf(other + i, kElements);
        for (int64_t k = 0; k < kElements; ++k) most[k] = std::max(most[k], theirs[k]);
      }
      CHECK((data[i] == most));
    }
  });
}

}  // namespace
}  // namespace smddp
