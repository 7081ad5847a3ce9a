// SmddpReduceGradient: one gradient of a plan. There is one op per gradient, so that the reduction of the first
// bucket runs while the backward pass is still computing the rest.
#include <utility>
#include <vector>

#include "ops/collective_kernel.h"
#include "ops/gpu_kernels.h"
#include "ops/tensor_adapter.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/op_requires.h"

namespace smddp::ops {
namespace {

class ReduceGradientKernel final : public CollectiveKernel {
 public:
  explicit ReduceGradientKernel(tensorflow::OpKernelConstruction* construction) : CollectiveKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("plan", &where_.plan));
    OP_REQUIRES_OK(construction, construction->GetAttr("index", &where_.index));
    OP_REQUIRES_OK(construction, construction->GetAttr("alone", &where_.alone));
    where_.site = site();
    const Arithmetic reduction = ReadArithmetic(construction);
    changes_alone_ = reduction.prescale * reduction.postscale != 1.0;
  }

 protected:
  void Start(Session& session, tensorflow::OpKernelContext* context, smddp::DoneCallback done) override {
    if (session.topology().size() == 1 && !changes_alone_) {  // nothing is sent, so nothing is narrowed either
      context->set_output(0, context->input(0));
      return done(Status::Ok());
    }
    Result<std::vector<TensorRef>> tensors = MakeTensorRefs(context, InPlaceOrNewOutput);
    if (!tensors.ok()) return done(tensors.status());
    session.ReducePlanned(WhereIn(context), tensors->front(), std::move(done));
  }
  Canceller OnCancel(tensorflow::OpKernelContext* context) const override {
    return [where = WhereIn(context)](Session& session) { session.CancelPlanned(where); };
  }

 private:
  PlannedTensor WhereIn(tensorflow::OpKernelContext* context) const {
    PlannedTensor where = where_;
    where.run = RunOf(context);
    return where;
  }

  PlannedTensor where_;
  bool changes_alone_ = false;  // does the result of a single rank differ from its gradient?
};

REGISTER_KERNEL_BUILDER(Name("SmddpReduceGradient").Device(tensorflow::DEVICE_CPU), ReduceGradientKernel);
[[maybe_unused]] const bool on_gpu = OnGpu<ReduceGradientKernel>("SmddpReduceGradient", {"gradient", "reduced"}, {});

}  // namespace
}  // namespace smddp::ops
