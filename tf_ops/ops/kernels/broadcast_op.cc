// SmddpBroadcast: copies the root's list of tensors to all ranks.
#include <utility>
#include <vector>

#include "ops/collective_kernel.h"
#include "ops/gpu_kernels.h"
#include "ops/tensor_adapter.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/op_requires.h"

namespace smddp::ops {
namespace {

// The root's result is not written, so its output is the input itself, without a copy.
Result<TensorRef> InputAsOutput(tensorflow::OpKernelContext* context, int index) {
  context->set_output(index, context->input(index));
  return MakeTensorRef(context->input(index), context->mutable_output(index));
}

class BroadcastKernel final : public CollectiveKernel {
 public:
  explicit BroadcastKernel(tensorflow::OpKernelConstruction* construction) : CollectiveKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("root_rank", &root_));
  }

 protected:
  void Start(Session& session, tensorflow::OpKernelContext* context, smddp::DoneCallback done) override {
    const bool is_root = session.topology().rank() == session.topology().rank_of_global(root_);
    Result<std::vector<TensorRef>> tensors = MakeTensorRefs(context, is_root ? InputAsOutput : InPlaceOrNewOutput);
    if (!tensors.ok()) return done(tensors.status());
    session.Broadcast({tensor_name(), std::move(*tensors), root_}, std::move(done));
  }

 private:
  int root_ = 0;
};

REGISTER_KERNEL_BUILDER(Name("SmddpBroadcast").Device(tensorflow::DEVICE_CPU), BroadcastKernel);
[[maybe_unused]] const bool broadcast_on_gpu = OnGpu<BroadcastKernel>("SmddpBroadcast", {}, {"tensors", "received"});

}  // namespace
}  // namespace smddp::ops
