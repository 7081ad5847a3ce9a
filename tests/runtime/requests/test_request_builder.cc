#include <cstring>

#include "core/shape.h"
#include "native/fabrics.h"
#include "native/members.h"
#include "runtime/requests/request_builder.h"

namespace smddp {
namespace {

// The builders of all ranks of a job; requests begin with a verdict of the test's.
struct Job {
  explicit Job(const Hosts& hosts) : fabrics(hosts) {
    for (int rank = 0; rank < fabrics.size(); ++rank) {
      verifiers.push_back(std::make_unique<Verifier>(fabrics.of(rank), false));
      builders.push_back(std::make_unique<RequestBuilder>(fabrics.of(rank), *verifiers[rank]));
    }
  }
  // Begins one request of each rank with the same verdict, and runs the tasks.
  void Run(const std::vector<NamedRequest>& requests, const Verdict& verdict) {
    std::vector<TaskPtr> tasks;
    for (const NamedRequest& request : requests) tasks.push_back(Value(request.begin(verdict)));
    fabrics.Run(std::move(tasks));
  }
  Fabrics fabrics;
  std::vector<std::unique_ptr<Verifier>> verifiers;
  std::vector<std::unique_ptr<RequestBuilder>> builders;
};

TensorRef Ref(std::vector<float>* data, std::vector<int64_t> shape) {
  return {DType::kFloat32, std::move(shape), data->data(), data->data()};
}
const DoneCallback kNobody = [](const Status&) {};

TEST_CASE("request builder: an allreduce announces its tensors and arithmetic, and its data when they are few") {
  Job job({"a"});
  std::vector<float> few = {1, 2, 3}, many(5000);
  Request request;
  request.kind = RequestKind::kAllreduce;
  request.name = "x";
  request.op = ReduceOp::kMax;
  request.prescale = 0.5;
  request.tensors = {Ref(&few, {3, 1})};
  const NamedRequest small = job.builders[0]->Build(request, kNobody);
  CHECK(small.announcement.kind == RequestKind::kAllreduce);
  CHECK(small.announcement.name == "x");
  CHECK(small.announcement.op == ReduceOp::kMax);
  CHECK(small.announcement.prescale == 0.5);
  REQUIRE(small.announcement.tensors.size() == 1);
  CHECK(small.announcement.tensors[0].shape == std::vector<int64_t>{3, 1});
  REQUIRE(small.announcement.data.size() == 12);
  float packed[3];
  std::memcpy(packed, small.announcement.data.data(), 12);
  CHECK(packed[2] == 1.5);  // scaled
  request.tensors = {Ref(&many, {5000})};
  const NamedRequest large = job.builders[0]->Build(request, kNobody);
  CHECK(large.announcement.data.empty());
  CHECK(large.tensors.size() == 1);
  request.kind = RequestKind::kReducescatter;
  CHECK(job.builders[0]->Build(request, kNobody).tensors.empty());
}

TEST_CASE("request builder: a verdict that holds the result needs no task, another one reduces") {
  Job job({"a", "a", "b"});
  std::vector<std::vector<float>> small, large;
  std::vector<NamedRequest> requests, large_requests;
  for (int rank = 0; rank < 3; ++rank) {
    small.push_back({rank + 1.0f, 10.0f * rank});
    large.push_back(ValuesOf(rank, 5000));
  }
  for (int rank = 0; rank < 3; ++rank) {
    Request request;
    request.kind = RequestKind::kAllreduce;
    request.op = ReduceOp::kSum;
    request.tensors = {Ref(&small[rank], {2})};
    requests.push_back(job.builders[rank]->Build(request, kNobody));
    request.tensors = {Ref(&large[rank], {5000})};
    large_requests.push_back(job.builders[rank]->Build(request, kNobody));
  }
  const float sums[] = {6, 30};
  Verdict verdict;
  verdict.data.assign(reinterpret_cast<const char*>(sums), sizeof(sums));
  CHECK((Value(requests[1].begin(verdict)) == nullptr));
  CHECK(small[1] == std::vector<float>{6, 30});
  verdict.data += "x";
  CHECK_FALSE(requests[0].begin(verdict).ok());
  verdict.data.clear();
  verdict.operation = 9;
  job.Run(large_requests, verdict);
  for (const auto& data : large) CHECK((data == SumOf(3, 5000)));
}

TEST_CASE("request builder: a broadcast copies the root's tensors, small and large ones") {
  for (const int64_t elements : {2, 200'000}) {
    CAPTURE(elements);
    Job job({"a", "a", "b", "b"});
    std::vector<std::vector<float>> from, to(4, std::vector<float>(elements, -1));
    std::vector<NamedRequest> requests;
    for (int rank = 0; rank < 4; ++rank) from.push_back(ValuesOf(rank, elements));
    for (int rank = 0; rank < 4; ++rank) {
      Request request;
      request.kind = RequestKind::kBroadcast;
      request.name = "b";
      request.root = 2;
      request.tensors = {{DType::kFloat32, {elements}, from[rank].data(), to[rank].data()}};
      requests.push_back(job.builders[rank]->Build(request, kNobody));
      CHECK(requests.back().announcement.root == 2);
    }
    Verdict verdict;
    verdict.operation = 4;
    job.Run(requests, verdict);
    for (const auto& data : to) CHECK((data == ValuesOf(2, elements)));
  }
}

TEST_CASE("request builder: an allgather allocates what the verdict's rows need, and checks them") {
  Job job({"a", "b"});
  std::vector<std::vector<float>> mine = {ValuesOf(0, 300), ValuesOf(1, 500)}, got(2);
  std::vector<NamedRequest> requests;
  std::vector<int64_t> rows;
  for (int rank = 0; rank < 2; ++rank) {
    Request request;
    request.kind = RequestKind::kAllgather;
    request.name = "g";
    request.tensors = {Ref(&mine[rank], {rank == 0 ? 3 : 5, 100})};
    request.allocate = [&, rank](int tensor, const std::vector<int64_t>& dim0) -> Result<void*> {
      CHECK(tensor == 0);
      rows = dim0;
      got[rank].resize(800);
      return static_cast<void*>(got[rank].data());
    };
    requests.push_back(job.builders[rank]->Build(request, kNobody));
  }
  Verdict verdict;
  for (const std::vector<int64_t>& wrong : {std::vector<int64_t>{3}, {4, 5}, {3, kMaxElements}}) {
    verdict.dim0_of_rank = wrong;
    CHECK(Has(requests[0].begin(verdict).status().message(), "rows of the ranks for allgather 'g' do not match"));
  }
  CHECK(rows.empty());  // nothing was allocated
  verdict.dim0_of_rank = {3, 5};
  verdict.operation = 6;
  job.Run(requests, verdict);
  CHECK(rows == std::vector<int64_t>{3, 5});
  std::vector<float> both = mine[0];
  both.insert(both.end(), mine[1].begin(), mine[1].end());
  for (const auto& result : got) CHECK((result == both));
}

TEST_CASE("request builder: an alltoall announces its splits, or that they are even") {
  Job job({"a", "a"});
  std::vector<std::vector<float>> mine = {ValuesOf(0, 600), ValuesOf(1, 600)}, got(2);
  std::vector<NamedRequest> requests;
  for (int rank = 0; rank < 2; ++rank) {
    Request request;
    request.kind = RequestKind::kAlltoall;
    request.name = "t";
    request.tensors = {Ref(&mine[rank], {6, 100})};
    request.even_split = true;
    request.allocate = [&, rank](int, const std::vector<int64_t>& received) -> Result<void*> {
      CHECK(received == std::vector<int64_t>{3, 3});
      got[rank].resize(600);
      return static_cast<void*>(got[rank].data());
    };
    requests.push_back(job.builders[rank]->Build(request, kNobody));
    CHECK(requests.back().announcement.even_split);
    CHECK(requests.back().announcement.splits.empty());
    request.even_split = false;
    request.splits = {1, 5};
    CHECK(job.builders[rank]->Build(request, kNobody).announcement.splits == std::vector<int64_t>{1, 5});
  }
  Verdict verdict;
  verdict.operation = 7;
  job.Run(requests, verdict);
  for (int rank = 0; rank < 2; ++rank) {
    std::vector<float> expected(mine[0].begin() + 300 * rank, mine[0].begin() + 300 * (rank + 1));
    expected.insert(expected.end(), mine[1].begin() + 300 * rank, mine[1].begin() + 300 * (rank + 1));
    CHECK((got[rank] == expected));
  }
}

TEST_CASE("request builder: fused requests are one reduction, begun with the oldest, and each is answered") {
  Job job({"a", "b"});
  std::vector<std::vector<float>> first, second;
  std::vector<NamedRequest> fused;
  std::vector<std::string> answers;
  for (int rank = 0; rank < 2; ++rank) {
    first.push_back(ValuesOf(rank, 700));
    second.push_back(ValuesOf(rank, 40));
  }
  for (int rank = 0; rank < 2; ++rank) {
    std::vector<NamedRequest> requests;
    for (auto* data : {&first[rank], &second[rank]}) {
      Request request;
      request.kind = RequestKind::kAllreduce;
      request.op = ReduceOp::kSum;
      request.tensors = {Ref(data, {static_cast<int64_t>(data->size())})};
      const int64_t size = static_cast<int64_t>(data->size());
      requests.push_back(job.builders[rank]->Build(request, [&answers, size](const Status& status) {
        answers.push_back(std::to_string(size) + " " + status.message());
      }));
      requests.back().submitted_ns = 1000 + size;
    }
    fused.push_back(job.builders[rank]->Fused(std::move(requests)));
    CHECK(fused.back().submitted_ns == 1040);  // of the second
  }
  Verdict verdict;
  verdict.operation = 8;
  job.Run(fused, verdict);
  for (int rank = 0; rank < 2; ++rank) {
    CHECK((first[rank] == SumOf(2, 700)));
    CHECK((second[rank] == SumOf(2, 40)));
  }
  fused[0].done(Status(Reason::kInternal, "why"));
  CHECK(answers == std::vector<std::string>{"700 why", "40 why"});
}

TEST_CASE("request builder: a rank that has joined contributes zeros; a barrier has no data") {
  Job job({"a", "b"});
  std::vector<float> data = ValuesOf(1, 3000);
  Request request;
  request.kind = RequestKind::kAllreduce;
  request.name = "j";
  request.op = ReduceOp::kSum;
  request.tensors = {Ref(&data, {3000})};
  const NamedRequest theirs = job.builders[1]->Build(request, kNobody);
  Verdict verdict;
  verdict.operation = 5;
  verdict.joined = {0};
  verdict.request = theirs.announcement;
  ZeroMemory zeros(/*shared=*/true);
  std::shared_ptr<void> keep;
  std::vector<TaskPtr> tasks;
  tasks.push_back(Value(job.builders[0]->BeginZeros(verdict, zeros, &keep)));
  tasks.push_back(Value(theirs.begin(verdict)));
  CHECK((keep != nullptr));
  job.fabrics.Run(std::move(tasks));
  CHECK((data == ValuesOf(1, 3000)));
  const NamedRequest barrier = job.builders[0]->Build({RequestKind::kBarrier, "all", {}}, kNobody);
  CHECK(barrier.announcement.kind == RequestKind::kBarrier);
  CHECK((Value(barrier.begin(verdict)) == nullptr));
}

}  // namespace
}  // namespace smddp
