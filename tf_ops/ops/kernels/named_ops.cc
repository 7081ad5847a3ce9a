// The ops that are matched by name, each of which makes one request of the session: SmddpAllreduce, SmddpReducescatter,
// SmddpBroadcast, SmddpAllgather, SmddpAlltoall, SmddpBarrier, SmddpJoin.
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "core/slice.h"
#include "ops/collective_kernel.h"
#include "ops/gpu_kernels.h"
#include "ops/tensor_adapter.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor_shape.h"

namespace smddp::ops {
namespace {

// SmddpAllreduce: reduces a list of tensors over all ranks. SmddpReducescatter: the same, but each rank keeps its rows
// only.
class AllreduceKernel : public CollectiveKernel {
 public:
  explicit AllreduceKernel(tensorflow::OpKernelConstruction* construction)
      : CollectiveKernel(construction), reduction_(ReadArithmetic(construction)) {}

 protected:
  AllreduceRequest MakeRequest(std::vector<TensorRef> tensors) const {
    return {reduction_, tensor_name(), std::move(tensors)};
  }
  void Start(Session& session, tensorflow::OpKernelContext* context, smddp::DoneCallback done) override {
    Result<std::vector<TensorRef>> tensors = MakeTensorRefs(context, InPlaceOrNewOutput);
    if (!tensors.ok()) return done(tensors.status());
    session.Allreduce(MakeRequest(std::move(*tensors)), std::move(done));
  }

 private:
  const Arithmetic reduction_;
};

class ReducescatterKernel final : public AllreduceKernel {
 public:
  using AllreduceKernel::AllreduceKernel;

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

// The root's result is not written, so its output is the input itself, without a copy.
Result<TensorRef> InputAsOutput(tensorflow::OpKernelContext* context, int index) {
  context->set_output(index, context->input(index));
  return MakeTensorRef(context->input(index), context->mutable_output(index));
}

// SmddpBroadcast: copies the root's list of tensors to all ranks.
class BroadcastKernel final : public CollectiveKernel {
 public:
  explicit BroadcastKernel(tensorflow::OpKernelConstruction* construction)
      : CollectiveKernel(construction), root_(ReadAttribute<int>(construction, "root_rank")) {}

 protected:
  void Start(Session& session, tensorflow::OpKernelContext* context, smddp::DoneCallback done) override {
    const bool is_root = session.topology().rank() == session.topology().rank_of_global(root_);
    Result<std::vector<TensorRef>> tensors = MakeTensorRefs(context, is_root ? InputAsOutput : InPlaceOrNewOutput);
    if (!tensors.ok()) return done(tensors.status());
    session.Broadcast({tensor_name(), std::move(*tensors), root_}, std::move(done));
  }

 private:
  const int root_;
};

// SmddpAllgather: concatenates the tensors of all ranks along the first dimension, in rank order.
class AllgatherKernel final : public CollectiveKernel {
 public:
  using CollectiveKernel::CollectiveKernel;

 protected:
  void Start(Session& session, tensorflow::OpKernelContext* context, smddp::DoneCallback done) override {
    Result<std::vector<TensorRef>> tensors = MakeTensorRefs(context, InputAlone);
    if (!tensors.ok()) return done(tensors.status());
    const auto allocate = [context](int tensor, const std::vector<int64_t>& dim0_of_rank) {
      return AllocateRows(context, tensor, std::accumulate(dim0_of_rank.begin(), dim0_of_rank.end(), int64_t{0}));
    };
    session.Allgather({tensor_name(), std::move(*tensors), allocate}, std::move(done));
  }
};

// Memory for both results. Called on the engine thread when the received rows are known.
Result<void*> AllocateResults(tensorflow::OpKernelContext* context, const std::vector<int64_t>& received) {
  tensorflow::Tensor* splits = nullptr;
  const tensorflow::TensorShape shape({static_cast<int64_t>(received.size())});
  const absl::Status allocated = context->allocate_output(1, shape, &splits);
  if (!allocated.ok()) return FromTensorFlow(allocated);
  std::copy(received.begin(), received.end(), splits->vec<int32_t>().data());
  return AllocateRows(context, 0, std::accumulate(received.begin(), received.end(), int64_t{0}));
}

// SmddpAlltoall: sends consecutive rows of a tensor to each rank.
class AlltoallKernel final : public CollectiveKernel {
 public:
  explicit AlltoallKernel(tensorflow::OpKernelConstruction* construction)
      : CollectiveKernel(construction), even_split_(ReadAttribute<bool>(construction, "even_split")) {}

 protected:
  void Start(Session& session, tensorflow::OpKernelContext* context, smddp::DoneCallback done) override {
    Result<TensorRef> tensor = InputAlone(context, 0);
    if (!tensor.ok()) return done(tensor.status());
    const tensorflow::Tensor& splits = context->input(1);
    AlltoallRequest request;
    request.name = tensor_name();
    request.tensor = std::move(*tensor);
    request.even_split = even_split_;
    const auto rows = splits.flat<int64_t>();
    if (!even_split_) request.splits.assign(rows.data(), rows.data() + rows.size());
    request.allocate = [context](const std::vector<int64_t>& received) { return AllocateResults(context, received); };
    session.Alltoall(std::move(request), std::move(done));
  }

 private:
  const bool even_split_;
};

// SmddpBarrier: done when every rank has reached it.
class BarrierKernel final : public CollectiveKernel {
 public:
  using CollectiveKernel::CollectiveKernel;

 protected:
  void Start(Session& session, tensorflow::OpKernelContext* /*context*/, smddp::DoneCallback done) override {
    session.Barrier(BarrierRequest{tensor_name()}, std::move(done));
  }
};

// SmddpJoin: this rank has no more data. Done when all ranks have joined; returns the last rank that did.
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

[[maybe_unused]] const bool registered =
    Register<AllreduceKernel>("SmddpAllreduce", {"tensors", "reduced"}, {}) &&
    Register<ReducescatterKernel>("SmddpReducescatter", {"tensors", "reduced"}, {}) &&
    Register<BroadcastKernel>("SmddpBroadcast", {}, {"tensors", "received"}) &&
    Register<AllgatherKernel>("SmddpAllgather", {}, {"tensors", "gathered"}) &&
    Register<AlltoallKernel>("SmddpAlltoall", {}, {"tensor", "splits", "received", "received_splits"}) &&
    Register<BarrierKernel>("SmddpBarrier", {}, {}) && Register<JoinKernel>("SmddpJoin", {}, {"last"});

}  // namespace
}  // namespace smddp::ops
