// What is compared, with the readings of two ranks made by hand. (test_verify.py damages whole jobs.)
#include <algorithm>
#include <limits>
#include <memory>

#include "native/ranks.h"
#include "runtime/verify/verify.h"

namespace smddp {
namespace {

constexpr int64_t kElements = 10'000;  // two pieces

// The readings of two ranks of a call; `damage` changes the memory of the ranks after it.
struct Two {
  Two(RequestKind kind, ReduceOp op) : parts{FabricOf(0, {"a", "a"}), FabricOf(1, {"a", "a"})} {
    for (int rank = 0; rank < 2; ++rank) {
      for (int64_t i = 0; i < kElements; ++i) inputs[rank].push_back(static_cast<float>(i % 97 + rank) / 4);
      outputs[rank] = inputs[rank];
      VerifiedCall call(kind);
      call.op = op;
      call.name = "allreduce 'x'";
      call.tensors = {{DType::kFloat32, {kElements}, inputs[rank].data(), outputs[rank].data()}};
      verifications.push_back(std::make_unique<Verification>(parts[rank]->fabric(), call));
      verifications[rank]->ReadInputs();
    }
  }
  void Sum() {
    for (auto& output : outputs) {
      for (int64_t i = 0; i < kElements; ++i) output[i] = inputs[0][i] + inputs[1][i];
    }
  }
  // Both ranks say the same.
  std::string Compare() {
    std::vector<Reading> records;
    for (auto& each : verifications) {
      each->ReadOutputs();
      records.insert(records.end(), each->record().begin(), each->record().end());
    }
    const Status status = verifications[0]->Compare(records);
    CHECK(status.ToString() == verifications[1]->Compare(records).ToString());
    return status.ok() ? "" : status.message();
  }
  const std::unique_ptr<FabricParts> parts[2];
  std::vector<float> inputs[2], outputs[2];
  std::vector<std::unique_ptr<Verification>> verifications;
};

TEST_CASE("verification: a right sum passes") {
  Two two(RequestKind::kAllreduce, ReduceOp::kSum);
  two.Sum();
  CHECK(two.Compare().empty());
}

TEST_CASE("verification: a rank with another result is named, by the one that is the sum") {
  for (const int damaged : {0, 1}) {
    Two two(RequestKind::kAllreduce, ReduceOp::kSum);
    two.Sum();
    two.outputs[damaged][9000] += 1;
    const std::string why = two.Compare();
    CHECK(Has(why, "allreduce 'x'"));
    CHECK(Has(why, "rank " + std::to_string(damaged)));
    CHECK(Has(why, "is not the result of rank " + std::to_string(1 - damaged)));
  }
}

TEST_CASE("verification: equal results that are not the sum are wrong, and rounding is not") {
  Two wrong(RequestKind::kAllreduce, ReduceOp::kSum);
  wrong.Sum();
  for (auto& output : wrong.outputs) output[5] += 1;
  CHECK(Has(wrong.Compare(), "is not the sum of the inputs"));
  Two rounded(RequestKind::kAllreduce, ReduceOp::kSum);
  rounded.Sum();
  for (auto& output : rounded.outputs) output[5] *= 1 + 1e-7f;
  CHECK(rounded.Compare().empty());
}

TEST_CASE("verification: of a maximum only the equality is compared") {
  Two two(RequestKind::kAllreduce, ReduceOp::kMax);
  two.Sum();
  CHECK(two.Compare().empty());
  two.outputs[0][0] = -1;
  Two other(RequestKind::kAllreduce, ReduceOp::kMax);
  other.Sum();
  other.outputs[0][0] = -1;
  CHECK_FALSE(other.Compare().empty());
}

TEST_CASE("verification: a broadcast is the root's input everywhere") {
  Two right(RequestKind::kBroadcast, ReduceOp::kSum);
  right.outputs[1] = right.inputs[0];
  std::copy(right.inputs[0].begin(), right.inputs[0].end(), right.outputs[1].begin());
  CHECK(right.Compare().empty());
  Two wrong(RequestKind::kBroadcast, ReduceOp::kSum);
  CHECK(Has(wrong.Compare(), "differs from the input of rank 0"));
}

TEST_CASE("verification: an infinity of the inputs must be in the sum") {
  Two two(RequestKind::kAllreduce, ReduceOp::kSum);
  two.inputs[0][3] = std::numeric_limits<float>::infinity();
  two.verifications.clear();
  for (int rank = 0; rank < 2; ++rank) {
    VerifiedCall call(RequestKind::kAllreduce);
    call.op = ReduceOp::kSum;
    call.name = "allreduce 'x'";
    call.tensors = {{DType::kFloat32, {kElements}, two.inputs[rank].data(), two.outputs[rank].data()}};
    two.verifications.push_back(std::make_unique<Verification>(two.parts[rank]->fabric(), call));
    two.verifications[rank]->ReadInputs();
  }
  two.Sum();
  for (auto& output : two.outputs) output[3] = 5;
  CHECK(Has(two.Compare(), "is not the sum of the inputs"));
}

}  // namespace
}  // namespace smddp
