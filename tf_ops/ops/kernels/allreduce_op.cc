// SmddpAllreduce: reduces a list of tensors over all ranks, matched by name. SmddpReducescatter: the same, but each
// rank keeps its rows only.
#include <utility>
#include <vector>

#include "core/slice.h"
#include "ops/collective_kernel.h"
#include "ops/gpu_kernels.h"
#include "ops/tensor_adapter.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace smddp::ops {
namespace {

class ReductionKernel : public CollectiveKernel {
 public:
  explicit ReductionKernel(tensorflow::OpKernelConstruction* construction)
      : CollectiveKernel(construction), reduction_(ReadArithmetic(construction)) {}

 protected:
  AllreduceRequest MakeRequest(std::vector<TensorRef> tensors) const {
    return {reduction_, tensor_name(), std::move(tensors)};
  }

 private:
  const Arithmetic reduction_;
};

class AllreduceKernel final : public ReductionKernel {
 public:
  using ReductionKernel::ReductionKernel;

 protected:
  void Start(Session& session, tensorflow::OpKernelContext* context, smddp::DoneCallback done) override {
    Result<std::vector<TensorRef>> tensors = MakeTensorRefs(context, InPlaceOrNewOutput);
    if (!tensors.ok()) return done(tensors.status());
    session.Allreduce(MakeRequest(std::move(*tensors)), std::move(done));
  }
};

class ReducescatterKernel final : public ReductionKernel {
 public:
  using ReductionKernel::ReductionKernel;

 protected:
  void Start(Session& session, tensorflow::OpKernelContext* context, smddp::DoneCallback done) override {
    const Topology& topology = session.topology();
    const auto with_my_rows = [&topology](tensorflow::OpKernelContext* of, int index) -> Result<TensorRef> {
      Result<TensorRef> tensor = InputAlone(of, index);
      if (!tensor.ok() || tensor->shape.empty()) return tensor;  // a scalar: the ranks' verdict refuses it
      SMDDP_ASSIGN_OR_RETURN(
          tensor->output, AllocateRows(of, index, RowsOf(tensor->shape[0], topology.size(), topology.rank()).size()));
      return tensor;
    };
    Result<std::vector<TensorRef>> tensors = MakeTensorRefs(context, with_my_rows);
    if (!tensors.ok()) return done(tensors.status());
    session.Reducescatter(MakeRequest(std::move(*tensors)), std::move(done));
  }
};

REGISTER_KERNEL_BUILDER(Name("SmddpAllreduce").Device(tensorflow::DEVICE_CPU), AllreduceKernel);
REGISTER_KERNEL_BUILDER(Name("SmddpReducescatter").Device(tensorflow::DEVICE_CPU), ReducescatterKernel);
[[maybe_unused]] const bool allreduce_on_gpu =
    OnGpu<AllreduceKernel>("SmddpAllreduce", {"tensors", "reduced"}, {}) &&
    OnGpu<ReducescatterKernel>("SmddpReducescatter", {"tensors", "reduced"}, {});

}  // namespace
}  // namespace smddp::ops
