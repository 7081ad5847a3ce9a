// SmddpJoin: this rank has no more data. Done when all ranks have joined; returns the last rank that did.
#include <cstdint>
#include <utility>

#include "ops/collective_kernel.h"
#include "ops/gpu_kernels.h"
#include "ops/tensor_adapter.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor_shape.h"

namespace smddp::ops {
namespace {

class JoinKernel final : public CollectiveKernel {
 public:
  using CollectiveKernel::CollectiveKernel;

 protected:
  void Start(Session& session, tensorflow::OpKernelContext* context, smddp::DoneCallback done) override {
    tensorflow::Tensor* last = nullptr;
    const absl::Status allocated = context->allocate_output(0, tensorflow::TensorShape(), &last);
    if (!allocated.ok()) return done(FromTensorFlow(allocated));
    session.Join(&last->scalar<int32_t>()(), std::move(done));
  }
};

REGISTER_KERNEL_BUILDER(Name("SmddpJoin").Device(tensorflow::DEVICE_CPU), JoinKernel);
[[maybe_unused]] const bool join_on_gpu = OnGpu<JoinKernel>("SmddpJoin", {}, {"last"});

}  // namespace
}  // namespace smddp::ops
