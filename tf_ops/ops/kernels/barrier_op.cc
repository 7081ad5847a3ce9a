// SmddpBarrier: done when every rank has reached it.
#include <utility>

#include "ops/collective_kernel.h"
#include "ops/gpu_kernels.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace smddp::ops {
namespace {

class BarrierKernel final : public CollectiveKernel {
 public:
  using CollectiveKernel::CollectiveKernel;

 protected:
  void Start(Session& session, tensorflow::OpKernelContext* /*context*/, smddp::DoneCallback done) override {
    session.Barrier(BarrierRequest{tensor_name()}, std::move(done));
  }
};

REGISTER_KERNEL_BUILDER(Name("SmddpBarrier").Device(tensorflow::DEVICE_CPU), BarrierKernel);
[[maybe_unused]] const bool barrier_on_gpu = OnGpu<BarrierKernel>("SmddpBarrier", {}, {});

}  // namespace
}  // namespace smddp::ops
