#include "ops/collective_kernel.h"

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "ops/tensor_adapter.h"
#include "tensorflow/core/framework/op_requires.h"

namespace smddp::ops {
namespace {

double DoubleFromBits(int64_t bits) {
  double value = 0;
  static_assert(sizeof(value) == sizeof(bits));
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

bool IsReduceOp(int64_t number) {
  switch (static_cast<ReduceOp>(number)) {
    case ReduceOp::kAverage:
    case ReduceOp::kSum:
    case ReduceOp::kAdasum:
    case ReduceOp::kMin:
    case ReduceOp::kMax:
    case ReduceOp::kProduct:
      return number >= 0 && number <= UINT8_MAX;
  }
  return false;
}

WireDType ReadWireDType(tensorflow::OpKernelConstruction* construction) {
  std::string name;
  const absl::Status read = construction->GetAttr("wire_dtype", &name);
  if (!read.ok()) construction->CtxFailure(read);
  const Result<WireDType> wire = WireDTypeFromName(name);
  if (wire.ok()) return wire.value();
  construction->CtxFailure(ToTensorFlow(wire.status()));
  return {};
}

}  // namespace

CollectiveKernel::CollectiveKernel(tensorflow::OpKernelConstruction* construction)
    : tensorflow::AsyncOpKernel(construction) {
  OP_REQUIRES_OK(construction, construction->GetAttr("tensor_name", &tensor_name_));
  OP_REQUIRES_OK(construction, construction->GetAttr("process_set", &process_set_));
}

void CollectiveKernel::ComputeAsync(tensorflow::OpKernelContext* context, DoneCallback done) {
  const Result<std::shared_ptr<Session>> found = SessionOf(process_set_);
  const std::shared_ptr<Session> session = found.ok() ? found.value() : nullptr;
  const Watch watch = session != nullptr ? WatchForCancellation(context, session) : Watch();
  smddp::DoneCallback finish = [context, watch, done = std::move(done)](const Status& status) {
    // Not DeregisterCallback, which waits for a cancellation in progress: this may be the engine thread. The callback
    // touches nothing of ours, so it may still run afterwards.
    if (watch.manager != nullptr) watch.manager->TryDeregisterCallback(watch.token);
    if (!status.ok()) context->SetStatus(ToTensorFlow(status));
    done();
  };
  if (session == nullptr) return finish(found.status());
  const std::string name = tensor_name_;  // `this` may be gone once the request is through
  Start(*session, context, std::move(finish));
  // The step was cancelled before: the request is made all the same, because other ranks count on it. The session
  // learns of it afterwards, so that it does not take the request for one of a later step.
  if (watch.cancelled) session->Cancel(name);
}

CollectiveKernel::Watch CollectiveKernel::WatchForCancellation(tensorflow::OpKernelContext* context,
                                                               const std::shared_ptr<Session>& session) const {
  tensorflow::CancellationManager* manager = context->cancellation_manager();
  if (manager == nullptr) return Watch();
  const tensorflow::CancellationToken token = manager->get_cancellation_token();
  const auto cancel = [session, name = tensor_name_] { session->Cancel(name); };
  if (manager->RegisterCallback(token, cancel)) return Watch{manager, token, false};
  return Watch{nullptr, 0, /*cancelled=*/true};
}

ReductionAttributes ReadReductionAttributes(tensorflow::OpKernelConstruction* construction) {
  ReductionAttributes attributes;
  const auto read = [construction](const char* name) {
    int64_t value = 0;
    const absl::Status status = construction->GetAttr(name, &value);
    if (!status.ok()) construction->CtxFailure(status);
    return value;
  };
  const int64_t op = read("reduce_op");
  if (IsReduceOp(op)) {
    attributes.op = static_cast<ReduceOp>(op);
  } else {
    construction->CtxFailure(
        absl::InvalidArgumentError("reduce_op must be the number of a reduction: Average 0, Sum 1, Adasum 2, Min 3, "
                                   "Max 4 or Product 5. Received: " +
                                   std::to_string(op)));
  }
  attributes.prescale = DoubleFromBits(read("prescale_bits"));
  attributes.postscale = DoubleFromBits(read("postscale_bits"));
  attributes.wire_dtype = ReadWireDType(construction);
  return attributes;
}

AllreduceRequest RequestFor(const std::string& name, std::vector<TensorRef> tensors,
                            const ReductionAttributes& reduction) {
  return {name, std::move(tensors), reduction.op, reduction.prescale, reduction.postscale, reduction.wire_dtype};
}

}  // namespace smddp::ops
