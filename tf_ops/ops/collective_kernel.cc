#include "ops/collective_kernel.h"

#include <atomic>
#include <memory>
#include <utility>

#include "absl/base/casts.h"
#include "ops/tensor_adapter.h"
#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/framework/op_requires.h"

namespace smddp::ops {
namespace {

WireDType ReadWireDType(tensorflow::OpKernelConstruction* construction) {
  const Result<WireDType> wire = WireDTypeFromName(ReadAttribute<std::string>(construction, "wire_dtype"));
  if (wire.ok()) return wire.value();
  construction->CtxFailure(ToTensorFlow(wire.status()));
  return {};
}

// TensorFlow cancels a step when one of its ops fails: before, during or after the time a request is made. The
// session is told when both events have happened, and decides whether this rank's requests can still complete. If it
// were told before the request, it would take the request for one of a later step, and wait.
//
// Threads: any; both events happen at most once.
class Cancellation {
 public:
  Cancellation(std::shared_ptr<Session> session, std::function<void(Session&)> tell)
      : session_(std::move(session)), tell_(std::move(tell)) {}

  void StepIsCancelled() { Happened(kCancelled); }
  void RequestIsMade() { Happened(kMade); }

 private:
  static constexpr int kCancelled = 1, kMade = 2;

  void Happened(int what) {
    if ((happened_.fetch_or(what) | what) == (kCancelled | kMade)) tell_(*session_);
  }

  const std::shared_ptr<Session> session_;
  const std::function<void(Session&)> tell_;
  std::atomic<int> happened_{0};
};

}  // namespace

CollectiveKernel::CollectiveKernel(tensorflow::OpKernelConstruction* construction)
    : tensorflow::AsyncOpKernel(construction) {
  OP_REQUIRES_OK(construction, construction->GetAttr("tensor_name", &tensor_name_));
  OP_REQUIRES_OK(construction, construction->GetAttr("process_set", &process_set_));
  OP_REQUIRES_OK(construction, construction->GetAttr("site", &site_));
  tensor_name_ = NameAt(tensor_name_, site_);
}

CollectiveKernel::Canceller CollectiveKernel::OnCancel(tensorflow::OpKernelContext* /*context*/) const {
  return [name = tensor_name_](Session& session) { session.Cancel(name); };
}

void CollectiveKernel::ComputeAsync(tensorflow::OpKernelContext* context, DoneCallback done) {
  const Result<std::shared_ptr<Session>> found = SessionOf(process_set_);
  if (!found.ok()) {
    context->SetStatus(ToTensorFlow(found.status()));
    return done();
  }
  const auto cancellation = std::make_shared<Cancellation>(found.value(), OnCancel(context));
  tensorflow::CancellationManager* const manager = context->cancellation_manager();
  const tensorflow::CancellationToken token = manager != nullptr ? manager->get_cancellation_token() : 0;
  if (manager != nullptr && !manager->RegisterCallback(token, [cancellation] { cancellation->StepIsCancelled(); })) {
    cancellation
        ->StepIsCancelled();  // cancelled before; the request is made all the same, because other ranks count on it
  }
  Start(*found.value(), context, [context, manager, token, done = std::move(done)](const Status& status) {
    // Not DeregisterCallback, which waits for a cancellation in progress: this may be the engine thread. The callback
    // uses only what it owns, so it may still run afterwards.
    if (manager != nullptr) manager->TryDeregisterCallback(token);
    if (!status.ok()) context->SetStatus(ToTensorFlow(status));
    done();
  });
  cancellation->RequestIsMade();  // `this`, `context` and `manager` may be destroyed by now
}

// TensorFlow gives every execution of a graph its own number, and within it every iteration of a loop. The result is
// even, unlike the numbers of compiled functions (compiled_call.cc), and never 0.
uint64_t RunOf(tensorflow::OpKernelContext* context) {
  uint64_t run = static_cast<uint64_t>(context->step_id());
  run = (run ^ context->frame_iter().frame_id) * 1099511628211ull;
  run = (run ^ static_cast<uint64_t>(context->frame_iter().iter_id)) * 1099511628211ull;
  return (run | 2) & ~uint64_t{1};
}

std::string NameAt(const std::string& name, int site) { return site == 0 ? name : Concat(name, "@", site + 1); }

Arithmetic ReadArithmetic(tensorflow::OpKernelConstruction* construction) {
  Arithmetic attributes;
  const auto op = ReadAttribute<int64_t>(construction, "reduce_op");
  if (op >= 0 && op <= static_cast<int64_t>(ReduceOp::kProduct)) {
    attributes.op = static_cast<ReduceOp>(op);
  } else {
    construction->CtxFailure(
        absl::InvalidArgumentError("reduce_op must be the number of a reduction: Average 0, Sum 1, Adasum 2, Min 3, "
                                   "Max 4 or Product 5. Received: " +
                                   std::to_string(op)));
  }
  attributes.prescale = absl::bit_cast<double>(ReadAttribute<int64_t>(construction, "prescale_bits"));
  attributes.postscale = absl::bit_cast<double>(ReadAttribute<int64_t>(construction, "postscale_bits"));
  attributes.wire_dtype = ReadWireDType(construction);
  return attributes;
}

}  // namespace smddp::ops
