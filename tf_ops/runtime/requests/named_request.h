// A request that all ranks make under one name.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "collectives/task.h"
#include "core/shape.h"
#include "runtime/api/session.h"
#include "runtime/control/messages.h"

namespace smddp {

struct NamedRequest {
  Announcement announcement;
  // Makes the task once the ranks agree; null: there are no data to move (barrier, plan).
  std::function<Result<TaskPtr>(const Verdict&)> begin;
  DoneCallback done;
  std::shared_ptr<void> keep;      // what the task refers to
  std::vector<TensorRef> tensors;  // of an allreduce
  int64_t submitted_ns = 0;
};

// Of all its tensors, unpacked.
inline int64_t BytesOf(const Announcement& request) {
  int64_t bytes = 0;
  for (const TensorSpec& tensor : request.tensors) {
    bytes += tensor.elements() * static_cast<int64_t>(SizeOf(tensor.dtype));
  }
  return bytes;
}

// May the request be reduced together with others? Large ones gain nothing. Their algorithm then is one that gives the
// same sums at every position (rail/selector.h).
inline bool MayBeFused(const Announcement& request) {
  constexpr int64_t kMaxFusedBytes = 4 << 20;  // a larger tensor keeps all ranks busy by itself
  if (request.kind != RequestKind::kAllreduce || request.tensors.empty()) return false;
  if (request.op == ReduceOp::kAdasum || request.wire_dtype == DType::kInt8) return false;
  const auto another = [&](const TensorSpec& tensor) { return tensor.dtype != request.tensors[0].dtype; };
  if (std::any_of(request.tensors.begin(), request.tensors.end(), another)) return false;
  return BytesOf(request) <= kMaxFusedBytes;
}

}  // namespace smddp
