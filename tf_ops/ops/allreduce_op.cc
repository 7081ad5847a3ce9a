// SmddpAllreduce: reduces a list of tensors over all ranks, matched by name.
#include <utility>
#include <vector>

#include "ops/collective_kernel.h"
#include "ops/tensor_adapter.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace smddp::ops {
namespace {

class AllreduceKernel final : public CollectiveKernel {
 public:
  explicit AllreduceKernel(tensorflow::OpKernelConstruction* construction)
      : CollectiveKernel(construction), reduction_(ReadReductionAttributes(construction)) {}

 protected:
  void Start(Session& session, tensorflow::OpKernelContext* context, smddp::DoneCallback done) override {
    Result<std::vector<TensorRef>> tensors = MakeTensorRefs(context, InPlaceOrNewOutput);
    if (!tensors.ok()) return done(tensors.status());
    AllreduceRequest request;
    request.name = tensor_name();
    request.tensors = std::move(*tensors);
    request.op = reduction_.op;
    request.prescale = reduction_.prescale;
    request.postscale = reduction_.postscale;
    request.wire_dtype = reduction_.wire_dtype;
    session.Allreduce(std::move(request), std::move(done));
  }

 private:
  const ReductionAttributes reduction_;
};

REGISTER_KERNEL_BUILDER(Name("SmddpAllreduce").Device(tensorflow::DEVICE_CPU), AllreduceKernel);

}  // namespace
}  // namespace smddp::ops
