// Which tensors travel together: pure functions, no ranks.
#include <algorithm>
#include <limits>

#include "core/shape.h"
#include "fusion/plan.h"
#include "native/testing.h"

namespace smddp {
namespace {

const std::vector<DType> kDTypes = {DType::kFloat16, DType::kBFloat16, DType::kFloat32, DType::kFloat64,
                                    DType::kInt32,   DType::kInt64,    DType::kUInt8};
const std::vector<WireDType> kWires = {std::nullopt, DType::kFloat16, DType::kBFloat16, DType::kFloat32};
constexpr int64_t kMib = 1 << 20;

// A random plan, and a limit.
struct Case {
  PlanSpec spec;
  int64_t limit = 0;
  std::vector<Bucket> buckets() const { return PlanBuckets(spec, {limit}); }
};

template <class Body>
void ForRandomPlans(Body&& body) {
  ForSeeds(300, [&](Chance& chance) {
    Case one;
    one.spec.wire_dtype = chance.Of(kWires);
    one.limit = chance.Of<int64_t>({0, 1, 100, 4096, 1 << 30});
    for (int64_t i = chance.From(0, 25); i > 0; --i) {
      TensorSpec tensor = {chance.Of(kDTypes), {}};
      for (int64_t dims = chance.From(0, 3); dims > 0; --dims) tensor.shape.push_back(chance.From(0, 40));
      one.spec.tensors.push_back(tensor);
    }
    body(one, chance);
  });
}

PlanSpec Floats(const std::vector<int64_t>& elements, WireDType wire = std::nullopt) {
  PlanSpec spec;
  for (const int64_t each : elements) spec.tensors.push_back({DType::kFloat32, {each}});
  spec.wire_dtype = wire;
  return spec;
}

TEST_CASE("plan: every tensor has one place, in order") {
  ForRandomPlans([](const Case& one, Chance&) {
    std::vector<int> tensors, firsts;
    std::vector<std::vector<int>> of_dtype(kDTypeCount);
    for (const Bucket& bucket : one.buckets()) {
      firsts.push_back(bucket.slots.at(0).tensor);
      for (const BucketSlot& slot : bucket.slots) {
        tensors.push_back(slot.tensor);
        const TensorSpec& tensor = one.spec.tensors[slot.tensor];
        CHECK(slot.elements == ElementCount(tensor.shape));
        of_dtype[static_cast<int>(tensor.dtype)].push_back(slot.tensor);
      }
    }
    for (const auto& each : of_dtype) CHECK(std::is_sorted(each.begin(), each.end()));
    CHECK(std::is_sorted(firsts.begin(), firsts.end()));
    CHECK(IsPermutation(tensors, one.spec.tensors.size()));
  });
}

TEST_CASE("plan: another order is another list") {
  ForRandomPlans([](const Case& one, Chance& chance) {
    std::vector<int> order(one.spec.tensors.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
    chance.Shuffle(&order);
    PlanSpec permuted = one.spec;
    for (size_t i = 0; i < order.size(); ++i) permuted.tensors[i] = one.spec.tensors[order[i]];
    const std::vector<Bucket> expected = PlanBuckets(permuted, {one.limit});
    const std::vector<Bucket> buckets = PlanBuckets(one.spec, {one.limit}, order);
    REQUIRE(buckets.size() == expected.size());
    for (size_t i = 0; i < buckets.size(); ++i) {
      CHECK(buckets[i].dtype == expected[i].dtype);
      CHECK(buckets[i].wire_dtype == expected[i].wire_dtype);
      CHECK(buckets[i].elements == expected[i].elements);
      REQUIRE(buckets[i].slots.size() == expected[i].slots.size());
      for (size_t k = 0; k < buckets[i].slots.size(); ++k) {
        CHECK(buckets[i].slots[k].tensor == order[expected[i].slots[k].tensor]);
        CHECK(buckets[i].slots[k].offset == expected[i].slots[k].offset);
        CHECK(buckets[i].slots[k].elements == expected[i].slots[k].elements);
      }
    }
  });
}

TEST_CASE("plan: an order holds every tensor once") {
  for (const std::vector<int>& order : std::vector<std::vector<int>>{{0}, {0, 0}, {0, 2}, {0, -1}, {0, 1, 2}}) {
    CHECK_FALSE(IsPermutation(order, 2));
  }
  CHECK(IsPermutation({1, 0}, 2));
  CHECK(IsPermutation({}, 0));
}

TEST_CASE("plan: a bucket has no gaps and one dtype") {
  ForRandomPlans([](const Case& one, Chance&) {
    for (const Bucket& bucket : one.buckets()) {
      int64_t end = 0;
      for (const BucketSlot& slot : bucket.slots) {
        CHECK(slot.offset == end);
        CHECK(one.spec.tensors[slot.tensor].dtype == bucket.dtype);
        end += slot.elements;
      }
      CHECK(end == bucket.elements);
      CHECK_FALSE(bucket.slots.empty());
    }
  });
}

TEST_CASE("plan: a bucket keeps the limit unless one tensor passes it") {
  ForRandomPlans([](const Case& one, Chance&) {
    for (const Bucket& bucket : one.buckets()) {
      const auto with_elements = std::count_if(bucket.slots.begin(), bucket.slots.end(),
                                               [](const BucketSlot& slot) { return slot.elements > 0; });
      CHECK((bucket.wire_bytes() <= one.limit || with_elements == 1));
    }
  });
}

TEST_CASE("plan: a bucket is closed only for a reason") {
  ForRandomPlans([](const Case& one, Chance&) {
    for (const DType dtype : kDTypes) {
      const Bucket* before = nullptr;
      const std::vector<Bucket> buckets = one.buckets();
      for (const Bucket& bucket : buckets) {
        if (bucket.dtype != dtype) continue;
        const int64_t first = bucket.slots[0].elements * static_cast<int64_t>(SizeOf(bucket.wire_dtype));
        if (before != nullptr) CHECK(before->wire_bytes() + first > one.limit);
        before = &bucket;
      }
    }
  });
}

TEST_CASE("plan: only wider floating tensors are narrowed") {
  ForRandomPlans([](const Case& one, Chance&) {
    const WireDType wire = one.spec.wire_dtype;
    for (const Bucket& bucket : PlanBuckets(one.spec, {4096})) {
      const bool narrows = Has(NameOf(bucket.dtype), "float") && wire && SizeOf(*wire) < SizeOf(bucket.dtype);
      CHECK(bucket.wire_dtype == (narrows ? *wire : bucket.dtype));
    }
  });
}

TEST_CASE("plan: the limit counts what travels") {
  CHECK(PlanBuckets(Floats({100, 100, 100, 100}), {800}).size() == 2);
  CHECK(PlanBuckets(Floats({100, 100, 100, 100}, DType::kBFloat16), {800}).size() == 1);
}

TEST_CASE("plan: without a limit every tensor travels alone") {
  CHECK(PlanBuckets(Floats({3, 3, 3, 3, 3}), {0}).size() == 5);
}

TEST_CASE("plan: tensors that are quantised have buckets of their own") {
  const std::vector<Bucket> buckets = PlanBuckets(Floats({100, 20'000, 100, 20'000}, DType::kInt8), {kMib});
  REQUIRE(buckets.size() == 2);
  CHECK_FALSE(buckets[0].quantised);
  CHECK(buckets[0].elements == 200);
  CHECK(buckets[1].quantised);
  CHECK(buckets[1].elements == 40'000);
  CHECK(buckets[1].wire_dtype == DType::kFloat32);
}

TEST_CASE("plan: names of wire dtypes") {
  CHECK(Value(WireDTypeFromName("")) == WireDType());
  CHECK(Value(WireDTypeFromName("auto")) == WireDType(kWireByLink));
  for (const char* name : {"int8", "float16", "bfloat16", "float32", "float64", "auto"}) {
    CHECK(std::string(NameOf(Value(WireDTypeFromName(name)))) == name);
  }
  CHECK(std::string(NameOf(WireDType())) == "as given");
  CHECK(Has(WireDTypeFromName("int32").status().message(), "A wire dtype must be auto, int8"));
  CHECK(Has(WireDTypeFromName("float33").status().message(), "Received: float33."));
}

TEST_CASE("plan: the slower the link, the narrower the wire") {
  const std::pair<double, const char*> rates[] = {
      {0.2, "int8"}, {2.9, "int8"}, {3.1, "bfloat16"}, {24, "bfloat16"}, {26, "as given"}};
  for (const auto& [gbit, name] : rates) CHECK(std::string(NameOf(WireFor(kWireByLink, gbit * 1e9 / 8))) == name);
  CHECK(WireFor(kWireByLink, std::numeric_limits<double>::infinity()) == WireDType());  // one node
  CHECK(WireFor(DType::kFloat16, 1) == WireDType(DType::kFloat16));                     // the user's
  CHECK(WireFor(std::nullopt, 1) == WireDType());
}

TEST_CASE("plan: what int8 narrows, and what it quantises") {
  CHECK(Narrowed(DType::kFloat64, DType::kInt8) == DType::kFloat32);
  CHECK(Narrowed(DType::kFloat16, DType::kInt8) == DType::kFloat16);
  CHECK(Narrowed(DType::kInt64, DType::kInt8) == DType::kInt64);
  Arithmetic sum = {ReduceOp::kSum, 1, 1, DType::kInt8};
  CHECK(Quantised(DType::kFloat32, 16384, sum));
  CHECK(Quantised(DType::kFloat64, 16384, sum));
  CHECK_FALSE(Quantised(DType::kFloat32, 16383, sum));
  CHECK_FALSE(Quantised(DType::kBFloat16, 16384, sum));
  sum.op = ReduceOp::kMax;
  CHECK_FALSE(Quantised(DType::kFloat32, 16384, sum));
  CHECK_FALSE(Quantised(DType::kFloat32, 16384, {ReduceOp::kSum, 1, 1, DType::kBFloat16}));
}

TEST_CASE("plan: buckets grow with the nodes") {
  const std::pair<int, int64_t> sizes[] = {{1, 25}, {2, 25}, {8, 25}, {16, 50}, {32, 100}, {64, 200}, {1000, 200}};
  for (const auto& [nodes, mib] : sizes) CHECK(DefaultBucketBytes(nodes) == mib * kMib);
}

TEST_CASE("plan: buckets are a part of the plan within bounds") {
  for (const auto& [nodes, parts] : {std::pair{1, 4}, std::pair{2, 16}}) {
    const auto bytes = [nodes = nodes](int64_t mib) {
      return BucketBytesFor(Floats({mib * kMib / 8, mib * kMib / 8}), nodes);
    };
    CHECK(bytes(1) == 25 * kMib / 16);
    CHECK(bytes(80) == 80 * kMib / parts);
    CHECK(bytes(4000) == 25 * kMib);
  }
}

TEST_CASE("plan: bucket sizes count what travels, and the nodes") {
  CHECK(BucketBytesFor(Floats({100 * kMib / 4}, DType::kBFloat16), 8) == 50 * kMib / 16);
  CHECK(BucketBytesFor(Floats({4000 * kMib / 4}), 16) == 50 * kMib);
}

TEST_CASE("plan: the same groups, whatever the order inside") {
  const PlanSpec spec = Floats({100, 100, 100, 100});
  CHECK(SameGroups(PlanBuckets(spec, {800}), PlanBuckets(spec, {800}, {1, 0, 3, 2})));
  CHECK_FALSE(SameGroups(PlanBuckets(spec, {800}), PlanBuckets(spec, {800}, {0, 2, 1, 3})));
  CHECK_FALSE(SameGroups(PlanBuckets(spec, {800}), PlanBuckets(spec, {1600})));
}

TEST_CASE("plan: its description holds all that must agree, and its digest differs with it") {
  PlanSpec spec = Floats({7, 9});
  spec.key = "tape";
  spec.names = {"kernel"};
  spec.notes = {"sparse: embedding"};
  CHECK(DescribePlan(spec) == std::vector<std::string>{"reducer tape", "op Average", "prescale factor 1",
                                                       "postscale factor 1", "wire dtype as given", "2 tensors",
                                                       "tensor 0: float32 [7]", "tensor 1: float32 [9]",
                                                       "sparse: embedding"});
  CHECK(NameOf(spec, 0) == "kernel");
  CHECK(NameOf(spec, 1) == "");
  const std::string digest = PlanDigest(spec);
  CHECK(digest.size() == 16);
  PlanSpec same = spec;
  same.names = {"another"};
  CHECK(PlanDigest(same) == digest);  // names need not agree
  std::vector<PlanSpec> others(6, spec);
  others[0].key = "tape#2";
  others[1].op = ReduceOp::kSum;
  others[2].prescale = 0.1;
  others[3].wire_dtype = DType::kFloat16;
  others[4].tensors[1].shape = {9, 1};
  others[5].parting = {PartMode::kReduce, 2};
  for (const PlanSpec& other : others) CHECK(PlanDigest(other) != digest);
  CHECK(KeyAt(spec, 0) == "tape");
  CHECK(KeyAt(spec, 1) == "tape@2");
  CHECK(PlanName(spec, 1) == "plan 'tape@2' (" + digest + ")");
}

}  // namespace
}  // namespace smddp
