#include "native/ranks.h"
#include "runtime/requests/reduce_job.h"

namespace smddp {
namespace {

TEST_CASE("reduce job: a view for each run of equal dtypes, all quantised or none") {
  const auto parts = FabricOf(0, {"a", "b"});
  std::vector<float> large(20'000), small(10);
  std::vector<int32_t> numbers(10);
  const auto tensor = [](auto* data, DType dtype) -> TensorRef {
    return {dtype, {static_cast<int64_t>(data->size())}, data->data(), data->data()};
  };
  Request request;
  request.kind = RequestKind::kAllreduce;
  request.op = ReduceOp::kSum;
  request.tensors = {tensor(&small, DType::kFloat32), tensor(&small, DType::kFloat32), tensor(&numbers, DType::kInt32),
                     tensor(&large, DType::kFloat32), tensor(&small, DType::kFloat32)};
  const auto plain = MakeReduceJob(parts->fabric(), request, /*places_vary=*/false);
  REQUIRE(plain->views.size() == 3);
  CHECK(plain->op == ReduceOp::kSum);
  CHECK(plain->views[0]->elements() == 20);
  CHECK(plain->views[1]->dtype() == DType::kInt32);
  CHECK(plain->views[2]->elements() == 20'010);
  request.wire_dtype = DType::kInt8;
  const auto quantised = MakeReduceJob(parts->fabric(), request, /*places_vary=*/false);
  CHECK(quantised->quantised == std::vector<bool>{false, false, true, false});
  request.wire_dtype = DType::kBFloat16;
  const auto narrow = MakeReduceJob(parts->fabric(), request, /*places_vary=*/false);
  CHECK(narrow->views[0]->wire() == DType::kBFloat16);
  CHECK(narrow->views[1]->wire() == DType::kInt32);
}

TEST_CASE("reduce job: an average is a sum that is divided") {
  const auto parts = FabricOf(0, {"a", "a", "a"});
  std::vector<float> data(4);
  Request request;
  request.kind = RequestKind::kAllreduce;
  request.op = ReduceOp::kAverage;
  request.prescale = 0.5;
  request.tensors = {{DType::kFloat32, {4}, data.data(), data.data()}};
  const auto job = MakeReduceJob(parts->fabric(), request, /*places_vary=*/false);
  CHECK(job->op == ReduceOp::kSum);
  CHECK(job->views[0]->before().factor == 0.5);
  CHECK(job->views[0]->after().divisor == 3);
}

TEST_CASE("reduce job: of a reducescatter only my rows are written") {
  const auto parts = FabricOf(1, {"a", "a", "a"});
  std::vector<float> input(14), output(4);  // 7 rows of 2: 3, 2 and 2 of them
  Request request;
  request.kind = RequestKind::kReducescatter;
  request.op = ReduceOp::kSum;
  request.tensors = {{DType::kFloat32, {7, 2}, input.data(), output.data()}};
  const auto job = MakeReduceJob(parts->fabric(), request, /*places_vary=*/false);
  REQUIRE(job->views.size() == 1);
  const std::vector<Piece>& pieces = job->views[0]->pieces();
  REQUIRE(pieces.size() == 3);
  CHECK(pieces[0].elements == 6);
  CHECK(pieces[0].output == nullptr);
  CHECK(pieces[1].input == input.data() + 6);
  CHECK(pieces[1].output == output.data());
  CHECK(pieces[1].elements == 4);
  CHECK(pieces[2].elements == 4);
  CHECK(pieces[2].output == nullptr);
}

}  // namespace
}  // namespace smddp
