#include "ops/collective_kernel.h"

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "ops/tensor_adapter.h"
#include "tensorflow/core/framework/cancellation.h"
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

// TensorFlow cancels a step when one of its ops fails, before, while or after a request is made. The session is told
// once both have happened, and decides whether this rank's requests can still end well: told before the request, it
// would take that for one of a later step, and wait.
//
// Threads: any; both things happen at most once.
class Cancellation {
 public:
  Cancellation(std::shared_ptr<Session> session, std::string name)
      : session_(std::move(session)), name_(std::move(name)) {}

  void StepIsCancelled() { Happened(kCancelled); }
  void RequestIsMade() { Happened(kMade); }

 private:
  static constexpr int kCancelled = 1, kMade = 2;

  void Happened(int what) {
    if ((happened_.fetch_or(what) | what) == (kCancelled | kMade)) session_->Cancel(name_);
  }

  const std::shared_ptr<Session> session_;
  const std::string name_;
  std::atomic<int> happened_{0};
};

}  // namespace

CollectiveKernel::CollectiveKernel(tensorflow::OpKernelConstruction* construction)
    : tensorflow::AsyncOpKernel(construction) {
  OP_REQUIRES_OK(construction, construction->GetAttr("tensor_name", &tensor_name_));
  OP_REQUIRES_OK(construction, construction->GetAttr("process_set", &process_set_));
}

void CollectiveKernel::ComputeAsync(tensorflow::OpKernelContext* context, DoneCallback done) {
  const Result<std::shared_ptr<Session>> found = SessionOf(process_set_);
  if (!found.ok()) {
    context->SetStatus(ToTensorFlow(found.status()));
    return done();
  }
  const auto cancellation = std::make_shared<Cancellation>(found.value(), tensor_name_);
  tensorflow::CancellationManager* const manager = context->cancellation_manager();
  const tensorflow::CancellationToken token = manager != nullptr ? manager->get_cancellation_token() : 0;
  if (manager != nullptr && !manager->RegisterCallback(token, [cancellation] { cancellation->StepIsCancelled(); })) {
    cancellation->StepIsCancelled();  // before; the request is made all the same, because other ranks count on it
  }
  Start(*found.value(), context, [context, manager, token, done = std::move(done)](const Status& status) {
    // Not DeregisterCallback, which waits for a cancellation in progress: this may be the engine thread. The callback
    // touches nothing of ours, so it may still run afterwards.
    if (manager != nullptr) manager->TryDeregisterCallback(token);
    if (!status.ok()) context->SetStatus(ToTensorFlow(status));
    done();
  });
  cancellation->RequestIsMade();  // `this`, `context` and `manager` may be gone now
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
