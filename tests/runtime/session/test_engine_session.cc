#include <numeric>

#include "native/members.h"
#include "native/ranks.h"
#include "runtime/session/engine_session.h"

namespace smddp {
namespace {

TEST_CASE("engine session: a disagreement is the same error on all ranks, and the session goes on") {
  std::string said[3];
  AsRanks({"a", "a", "b"}, [&](int rank, Session& session) {
    std::vector<float> data(rank == 2 ? 501 : 500, 1);
    const Status status = Sum(session, "x", &data);
    CHECK(status.reason() == Reason::kTensorsDiffer);
    said[rank] = status.message();
    std::vector<float> again = ValuesOf(rank, 500);
    CHECK(Sum(session, "x", &again).ok());
    CHECK((again == SumOf(3, 500)));
  });
  CHECK(Has(said[0], "rank 0 has [500], rank 2 has [501], for 'x'"));
  CHECK(said[0] == said[1]);
  CHECK(said[0] == said[2]);
}

TEST_CASE("engine session: rows to each rank, my rows of a sum, barriers and joins") {
  AsRanks({"a", "b", "b"}, [](int rank, Session& session) {
    std::vector<float> mine(6 * 100), got;
    for (size_t i = 0; i < mine.size(); ++i) mine[i] = static_cast<float>(1000 * rank + static_cast<int>(i) / 100);
    Request request(RequestKind::kAlltoall, "rows", {{DType::kFloat32, {6, 100}, mine.data(), nullptr}});
    request.splits = {1, 2, 3};
    request.allocate = [&](int, const std::vector<int64_t>& received) -> Result<void*> {
      CHECK(received == std::vector<int64_t>(3, rank + 1));
      got.resize(100 * std::accumulate(received.begin(), received.end(), int64_t{0}));
      return got.data();
    };
    CHECK(Wait([&](DoneCallback done) { session.Submit(request, done); }).ok());
    const int first = rank == 0 ? 0 : rank == 1 ? 1 : 3;
    for (size_t row = 0; row < got.size() / 100; ++row) {
      const int from = static_cast<int>(row) / (rank + 1), of = first + static_cast<int>(row) % (rank + 1);
      CHECK(got[row * 100 + 7] == static_cast<float>(1000 * from + of));
    }
    std::vector<float> rows(2 * 100);
    const TensorRef tensor = {DType::kFloat32, {6, 100}, mine.data(), rows.data()};
    const Request scatter(RequestKind::kReducescatter, "scatter", {tensor}, {ReduceOp::kSum});
    CHECK(Wait([&](DoneCallback done) { session.Submit(scatter, done); }).ok());
    for (int row = 0; row < 2; ++row) CHECK(rows[row * 100 + 3] == static_cast<float>(3000 + 3 * (2 * rank + row)));
    CHECK(Wait([&](DoneCallback done) { session.Submit({RequestKind::kBarrier, "all", {}}, done); }).ok());
    int last = -1;
    CHECK(Wait([&](DoneCallback done) { session.Join(&last, done); }).ok());
    CHECK(last >= 0);
    CHECK(last < 3);
  });
}

TEST_CASE("engine session: a request of a session that has ended is refused at once") {
  ClusterOptions options;
  options.host_of_rank = {"a", "a"};
  const auto cluster = Value(StartInprocCluster(options));
  std::vector<float> data(500, 1);
  std::thread other([&] { cluster->Stop(1); });
  cluster->Stop(0);
  other.join();
  CHECK(Sum(cluster->session(0), "x", &data).reason() == Reason::kBadState);
}

TEST_CASE("engine session: a rank that leaves ends what waits for it") {
  ClusterOptions options;
  options.host_of_rank = {"a", "a"};
  const auto cluster = Value(StartInprocCluster(options));
  std::vector<float> data(500, 1);
  std::thread leaves([&] { cluster->Stop(1); });
  const Status status = Sum(cluster->session(0), "x", &data);
  leaves.join();
  CHECK(status.reason() == Reason::kPeerLeft);
  CHECK(Begins(status.message(), "Rank 1 has ended its session"));
}

TEST_CASE("engine session: equal plans have equal numbers") {
  AsRanks({"a"}, [](int, Session& session) {
    PlanSpec spec;
    spec.key = "tape";
    spec.tensors = {{DType::kFloat32, {5}}};
    const int first = Value(session.RegisterPlan(spec));
    CHECK(Value(session.RegisterPlan(spec)) == first);
    spec.tensors[0].shape = {6};
    CHECK(Value(session.RegisterPlan(spec)) != first);
  });
}

}  // namespace
}  // namespace smddp
