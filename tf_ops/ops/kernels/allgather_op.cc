// SmddpAllgather: concatenates the tensors of all ranks along the first dimension, in rank order.
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "ops/collective_kernel.h"
#include "ops/gpu_kernels.h"
#include "ops/tensor_adapter.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace smddp::ops {
namespace {

class AllgatherKernel final : public CollectiveKernel {
 public:
  using CollectiveKernel::CollectiveKernel;

 protected:
  void Start(Session& session, tensorflow::OpKernelContext* context, smddp::DoneCallback done) override {
    Result<std::vector<TensorRef>> tensors = MakeTensorRefs(context, InputAlone);
    if (!tensors.ok()) return done(tensors.status());
    AllgatherRequest request;
    request.name = tensor_name();
    request.tensors = std::move(*tensors);
    request.allocate = [context](int tensor, const std::vector<int64_t>& dim0_of_rank) {
      return AllocateRows(context, tensor, std::accumulate(dim0_of_rank.begin(), dim0_of_rank.end(), int64_t{0}));
    };
    session.Allgather(std::move(request), std::move(done));
  }
};

REGISTER_KERNEL_BUILDER(Name("SmddpAllgather").Device(tensorflow::DEVICE_CPU), AllgatherKernel);
[[maybe_unused]] const bool allgather_on_gpu = OnGpu<AllgatherKernel>("SmddpAllgather", {}, {"tensors", "gathered"});

}  // namespace
}  // namespace smddp::ops
