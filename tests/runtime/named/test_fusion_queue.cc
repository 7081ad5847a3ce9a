// Which named allreduces are reduced together. (The jobs of test_fusion_queue.py show that the sums stay the same.)
#include <functional>

#include "native/testing.h"
#include "runtime/named/fusion_queue.h"

namespace smddp {
namespace {

constexpr int64_t kMostBytes = 1 << 20;
using Names = std::vector<std::string>;

Verdict VerdictOf(const std::string& name, const std::vector<DType>& dtypes = {DType::kFloat32},
                  int64_t elements = 1000) {
  Verdict verdict;
  verdict.kind = verdict.request.kind = RequestKind::kAllreduce;
  verdict.name = verdict.request.name = name;
  for (const DType dtype : dtypes) verdict.request.tensors.push_back({dtype, {elements}});
  verdict.request.op = ReduceOp::kSum;
  return verdict;
}
Verdict With(Verdict verdict, const std::function<void(Verdict*)>& change) {
  change(&verdict);
  return verdict;
}

void Add(FusionQueue* queue, Verdict verdict) {
  CHECK(FusionQueue::Takes(verdict));
  queue->Add(std::move(verdict));
}

// The names that leave together.
Names NamesOf(const std::optional<Verdict>& verdict) {
  if (!verdict) return {};
  CHECK(verdict->is_limited);
  Names names = {verdict->name};
  for (const RequestRef& each : verdict->fused) names.push_back(each.name);
  return names;
}

TEST_CASE("fusion queue: what comes while others travel leaves together") {
  FusionQueue queue(kMostBytes);
  Add(&queue, VerdictOf("a"));
  CHECK(NamesOf(queue.Next()) == Names{"a"});
  Add(&queue, VerdictOf("b"));
  CHECK(NamesOf(queue.Next()) == Names{"b"});  // two travel
  for (const char* name : {"c", "d", "e"}) Add(&queue, VerdictOf(name));
  CHECK(NamesOf(queue.Next()) == Names{});
  queue.Ended();
  CHECK(NamesOf(queue.Next()) == Names{"c", "d", "e"});
  CHECK(NamesOf(queue.Next()) == Names{});
}

TEST_CASE("fusion queue: what does not fit goes by itself") {
  const std::vector<Verdict> others = {
      VerdictOf("other", {DType::kFloat64}),
      VerdictOf("other", {DType::kFloat32, DType::kFloat64}),
      With(VerdictOf("other"), [](Verdict* verdict) { verdict->request.op = ReduceOp::kMax; }),
      With(VerdictOf("other"), [](Verdict* verdict) { verdict->request.op = ReduceOp::kAdasum; }),
      With(VerdictOf("other"), [](Verdict* verdict) { verdict->request.prescale = 0.5; }),
      With(VerdictOf("other"), [](Verdict* verdict) { verdict->request.postscale = 0.5; }),
      With(VerdictOf("other"), [](Verdict* verdict) { verdict->request.wire_dtype = DType::kBFloat16; }),
      With(VerdictOf("other"), [](Verdict* verdict) { verdict->request.wire_dtype = DType::kInt8; }),
      VerdictOf("other", {DType::kFloat32}, (4 << 20) / 4 + 1),
  };
  for (size_t i = 0; i < others.size(); ++i) {
    CAPTURE(i);
    FusionQueue queue(kMostBytes);
    Add(&queue, VerdictOf("a"));
    Add(&queue, others[i]);
    Add(&queue, VerdictOf("b"));
    CHECK(NamesOf(queue.Next()) == Names{"a", "b"});
    CHECK(NamesOf(queue.Next()) == Names{"other"});
  }
}

TEST_CASE("fusion queue: what never goes together") {
  const std::function<void(Verdict*)> changes[] = {
      [](Verdict* verdict) { verdict->request.op = ReduceOp::kAdasum; },
      [](Verdict* verdict) { verdict->request.wire_dtype = DType::kInt8; },
      [](Verdict* verdict) { verdict->request.tensors.push_back({DType::kFloat64, {1000}}); },
  };
  for (const auto& change : changes) {
    FusionQueue queue(kMostBytes);
    for (const char* name : {"a", "b"}) Add(&queue, With(VerdictOf(name), change));
    CHECK(NamesOf(queue.Next()) == Names{"a"});
    CHECK(NamesOf(queue.Next()) == Names{"b"});
  }
}

TEST_CASE("fusion queue: no more bytes than a bucket has") {
  FusionQueue queue(kMostBytes);
  for (const char* name : {"a", "b", "c", "d"}) Add(&queue, VerdictOf(name, {DType::kFloat32}, kMostBytes / 4 / 3));
  CHECK(NamesOf(queue.Next()) == Names{"a", "b", "c"});
  CHECK(NamesOf(queue.Next()) == Names{"d"});
}

TEST_CASE("fusion queue: none together where that is switched off") {
  FusionQueue queue(0);
  for (const char* name : {"a", "b"}) Add(&queue, VerdictOf(name));
  CHECK(NamesOf(queue.Next()) == Names{"a"});
  CHECK(NamesOf(queue.Next()) == Names{"b"});
}

TEST_CASE("fusion queue: one that another verdict follows") {
  FusionQueue queue(kMostBytes);
  for (const char* name : {"a", "b", "c"}) Add(&queue, VerdictOf(name));
  CHECK(NamesOf(queue.Take("x")) == Names{});
  CHECK(NamesOf(queue.Take("b")) == Names{"b"});
  CHECK(NamesOf(queue.Next()) == Names{"a", "c"});
}

TEST_CASE("fusion queue: what does not wait here") {
  const std::function<void(Verdict*)> changes[] = {
      [](Verdict* verdict) { verdict->kind = RequestKind::kBroadcast; },
      [](Verdict* verdict) { verdict->status = Status(Reason::kDisagreement, "no"); },
      [](Verdict* verdict) { verdict->data = "sum"; },
      [](Verdict* verdict) { verdict->joined = {1}; },
  };
  for (const auto& change : changes) CHECK_FALSE(FusionQueue::Takes(With(VerdictOf("a"), change)));
}

}  // namespace
}  // namespace smddp
