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
    const int count = context->num_outputs() - 1;
    Result<std::vector<TensorRef>> tensors =
        MakeTensorRefs(context, count, [&](int index) { return MakeRef(context, index); });
    if (!tensors.ok()) return done(tensors.status());
    const Result<tensorflow::Tensor*> token = NewOutput(context, count, tensorflow::TensorShape());
    if (!token.ok()) return done(token.status());
    (*token)->scalar<int>()() = 0;
    StartCompiledCall(session, call_, std::move(*tensors), std::move(done));
  }

 private:
  Result<TensorRef> MakeRef(tensorflow::OpKernelContext* context, int index) const {
    if (call_.kind != RequestKind::kAllgather) return InPlaceOrNewOutput(context, index);
    SMDDP_ASSIGN_OR_RETURN(TensorRef tensor, MakeTensorRef(context->input(index), nullptr));
    SMDDP_ASSIGN_OR_RETURN(tensor.output, AllocateRows(context, index, tensor.shape[0] * call_.size));
    return tensor;
  }

  const CompiledCall call_;
};

[[maybe_unused]] const bool registered =
    Register<CompiledCollectiveKernel>("SmddpCompiledCollective", {}, {"tensors", "after", "results", "token"});

}  // namespace
}  // namespace smddp::ops
