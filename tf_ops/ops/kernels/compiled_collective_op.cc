// SmddpCompiledCollective without XLA: used when the function runs as a plain graph after all.
#include <utility>
#include <vector>

#include "ops/collective_kernel.h"
#include "ops/compiled_call.h"
#include "ops/gpu_kernels.h"
#include "ops/tensor_adapter.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor_shape.h"

namespace smddp::ops {
namespace {

class CompiledCollectiveKernel final : public CollectiveKernel {
 public:
  explicit CompiledCollectiveKernel(tensorflow::OpKernelConstruction* construction)
      : CollectiveKernel(construction), call_(ReadCompiledCall(construction)) {}

 protected:
  void Start(Session& session, tensorflow::OpKernelContext* context, smddp::DoneCallback done) override {
    std::vector<TensorRef> tensors;
    const int count = context->num_outputs() - 1;
    for (int index = 0; index < count; ++index) {
      Result<TensorRef> tensor = MakeRef(context, index);
      if (!tensor.ok()) return done(tensor.status());
      tensors.push_back(std::move(*tensor));
    }
    tensorflow::Tensor* token = nullptr;
    const absl::Status allocated = context->allocate_output(count, tensorflow::TensorShape(), &token);
    if (!allocated.ok()) return done(FromTensorFlow(allocated));
    token->scalar<int>()() = 0;
    StartCompiledCall(session, call_, std::move(tensors), std::move(done));
  }

 private:
  Result<TensorRef> MakeRef(tensorflow::OpKernelContext* context, int index) const {
    if (call_.kind != RequestKind::kAllgather) return InPlaceOrNewOutput(context, index);
    SMDDP_ASSIGN_OR_RETURN(TensorRef tensor, InputAlone(context, index));
    SMDDP_ASSIGN_OR_RETURN(tensor.output, AllocateRows(context, index, tensor.shape[0] * call_.size));
    return tensor;
  }

  const CompiledCall call_;
};

[[maybe_unused]] const bool registered =
    Register<CompiledCollectiveKernel>("SmddpCompiledCollective", {}, {"tensors", "after", "results", "token"});

}  // namespace
}  // namespace smddp::ops
