#include "runtime/requests/named_request.h"

#include <algorithm>

#include "core/shape.h"

namespace smddp {
namespace {

// A larger tensor keeps all ranks busy by itself.
constexpr int64_t kMaxFusedBytes = 4 << 20;

}  // namespace

int64_t BytesOf(const Announcement& request) {
  int64_t bytes = 0;
  for (size_t i = 0; i < request.shapes.size(); ++i) {
    bytes += ElementCount(request.shapes[i]) * static_cast<int64_t>(SizeOf(request.dtypes[i]));
  }
  return bytes;
}

bool MayBeFused(const Announcement& request) {
  if (request.kind != RequestKind::kAllreduce || request.dtypes.empty()) return false;
  if (request.op == ReduceOp::kAdasum || request.wire_dtype == DType::kInt8) return false;
  const auto another = [&](DType dtype) { return dtype != request.dtypes[0]; };
  if (std::any_of(request.dtypes.begin(), request.dtypes.end(), another)) return false;
  return BytesOf(request) <= kMaxFusedBytes;
}

}  // namespace smddp
