// SmddpAlltoall: sends consecutive rows of a tensor to each rank.
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "ops/collective_kernel.h"
#include "ops/gpu_kernels.h"
#include "ops/tensor_adapter.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/op_requires.h"
#include "tensorflow/core/framework/tensor_shape.h"

namespace smddp::ops {
namespace {

// Memory for both results. Called on the engine thread when the received rows are known.
Result<void*> AllocateResults(tensorflow::OpKernelContext* context, const std::vector<int64_t>& received) {
  tensorflow::Tensor* splits = nullptr;
  const tensorflow::TensorShape shape({static_cast<int64_t>(received.size())});
  const absl::Status allocated = context->allocate_output(1, shape, &splits);
  if (!allocated.ok()) return FromTensorFlow(allocated);
  for (size_t rank = 0; rank < received.size(); ++rank) {
    splits->vec<int32_t>()(rank) = static_cast<int32_t>(received[rank]);
  }
  return AllocateRows(context, 0, std::accumulate(received.begin(), received.end(), int64_t{0}));
}

class AlltoallKernel final : public CollectiveKernel {
 public:
  explicit AlltoallKernel(tensorflow::OpKernelConstruction* construction) : CollectiveKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("even_split", &even_split_));
  }

 protected:
  void Start(Session& session, tensorflow::OpKernelContext* context, smddp::DoneCallback done) override {
    Result<TensorRef> tensor = InputAlone(context, 0);
    if (!tensor.ok()) return done(tensor.status());
    const tensorflow::Tensor& splits = context->input(1);
    AlltoallRequest request;
    request.name = tensor_name();
    request.tensor = std::move(*tensor);
    request.even_split = even_split_;
    for (int64_t i = 0; !even_split_ && i < splits.NumElements(); ++i) {
      request.splits.push_back(splits.flat<int64_t>()(i));
    }
    request.allocate = [context](const std::vector<int64_t>& received) { return AllocateResults(context, received); };
    session.Alltoall(std::move(request), std::move(done));
  }

 private:
  bool even_split_ = false;
};

REGISTER_KERNEL_BUILDER(Name("SmddpAlltoall").Device(tensorflow::DEVICE_CPU), AlltoallKernel);
[[maybe_unused]] const bool alltoall_on_gpu =
    OnGpu<AlltoallKernel>("SmddpAlltoall", {}, {"tensor", "splits", "received", "received_splits"});

}  // namespace
}  // namespace smddp::ops
