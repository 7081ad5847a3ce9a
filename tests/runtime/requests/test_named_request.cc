#include "native/testing.h"
#include "runtime/requests/named_request.h"

namespace smddp {
namespace {

Announcement Request(const std::vector<DType>& dtypes, int64_t elements) {
  Announcement request;
  request.kind = RequestKind::kAllreduce;
  request.op = ReduceOp::kSum;
  for (const DType dtype : dtypes) request.tensors.push_back({dtype, {elements}});
  return request;
}

TEST_CASE("named request: bytes of all its tensors, unpacked") {
  CHECK(BytesOf(Request({DType::kFloat32, DType::kInt64}, 10)) == 120);
  CHECK(BytesOf(Request({}, 10)) == 0);
  Announcement narrow = Request({DType::kFloat32}, 10);
  narrow.wire_dtype = DType::kFloat16;
  CHECK(BytesOf(narrow) == 40);
}

TEST_CASE("named request: which may be reduced together with others") {
  constexpr int64_t kMost = (4 << 20) / 4;
  CHECK(MayBeFused(Request({DType::kFloat32}, kMost)));
  CHECK_FALSE(MayBeFused(Request({DType::kFloat32}, kMost + 1)));
  CHECK(MayBeFused(Request({DType::kInt32, DType::kInt32}, 3)));
  CHECK_FALSE(MayBeFused(Request({DType::kInt32, DType::kInt64}, 3)));
  CHECK_FALSE(MayBeFused(Request({}, 3)));
  Announcement request = Request({DType::kFloat32}, 3);
  request.op = ReduceOp::kAdasum;
  CHECK_FALSE(MayBeFused(request));
  request = Request({DType::kFloat32}, 3);
  request.wire_dtype = DType::kInt8;
  CHECK_FALSE(MayBeFused(request));
  request = Request({DType::kFloat32}, 3);
  request.kind = RequestKind::kBroadcast;
  CHECK_FALSE(MayBeFused(request));
}

}  // namespace
}  // namespace smddp
