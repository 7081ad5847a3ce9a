// SmddpAllgather: concatenates everybody's tensor along the first dimension, in rank order.
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "ops/collective_kernel.h"
#include "ops/tensor_adapter.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor_shape.h"

namespace smddp::ops {
namespace {

// Memory for the result. Called on the engine thread, once the first dimension of every rank is known.
Result<void*> AllocateResult(tensorflow::OpKernelContext* context, const std::vector<int64_t>& dim0_of_rank) {
  tensorflow::TensorShape shape = context->input(0).shape();
  shape.set_dim(0, std::accumulate(dim0_of_rank.begin(), dim0_of_rank.end(), int64_t{0}));
  tensorflow::Tensor* output = nullptr;
  const absl::Status allocated = context->allocate_output(0, shape, &output);
  if (!allocated.ok()) return FromTensorFlow(allocated);
  return output->data();
}

class AllgatherKernel final : public CollectiveKernel {
 public:
  using CollectiveKernel::CollectiveKernel;

 protected:
  void Start(Session& session, tensorflow::OpKernelContext* context, smddp::DoneCallback done) override {
    const tensorflow::Tensor& input = context->input(0);
    Result<TensorRef> tensor = MakeTensorRef(input, nullptr);
    if (!tensor.ok()) return done(tensor.status());
    AllgatherRequest request;
    request.name = tensor_name();
    request.tensor = std::move(*tensor);
    request.allocate = [context](const std::vector<int64_t>& dim0_of_rank) {
      return AllocateResult(context, dim0_of_rank);
    };
    session.Allgather(std::move(request), std::move(done));
  }
};

REGISTER_KERNEL_BUILDER(Name("SmddpAllgather").Device(tensorflow::DEVICE_CPU), AllgatherKernel);

}  // namespace
}  // namespace smddp::ops
