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

// Memory for the rows that come from each rank. Called on the engine thread when they are known.
Result<void*> Allocate(tensorflow::OpKernelContext* context, RequestKind kind, int tensor,
                       const std::vector<int64_t>& rows) {
  if (kind == RequestKind::kAlltoall) {
    const tensorflow::TensorShape shape({static_cast<int64_t>(rows.size())});
    SMDDP_ASSIGN_OR_RETURN(tensorflow::Tensor* const splits, NewOutput(context, 1, shape));
    std::copy(rows.begin(), rows.end(), splits->vec<int32_t>().data());
  }
  return AllocateRows(context, tensor, std::accumulate(rows.begin(), rows.end(), int64_t{0}));
}

// All but SmddpJoin. What each kind does is said at Request (runtime/api/session.h).
template <RequestKind kKind>
class RequestKernel final : public CollectiveKernel {
 public:
  explicit RequestKernel(tensorflow::OpKernelConstruction* construction)
      : CollectiveKernel(construction), request_(kKind, tensor_name(), {}) {
    if (kKind == RequestKind::kAllreduce || kScatters) request_.SetArithmetic(ReadArithmetic(construction));
    if (kKind == RequestKind::kBroadcast) request_.root = ReadAttribute<int>(construction, "root_rank");
    if (kKind == RequestKind::kAlltoall) request_.even_split = ReadAttribute<bool>(construction, "even_split");
  }

 protected:
  void Start(Session& session, tensorflow::OpKernelContext* context, smddp::DoneCallback done) override {
    const int count = kKind == RequestKind::kAlltoall ? 1 : context->num_inputs();
    Result<std::vector<TensorRef>> tensors =
        MakeTensorRefs(context, count, [&](int index) { return MakeRef(session.topology(), context, index); });
    if (!tensors.ok()) return done(tensors.status());
    Request request = request_;
    request.tensors = std::move(*tensors);
    request.allocate = [context](int tensor, const std::vector<int64_t>& rows) {
      return Allocate(context, kKind, tensor, rows);
    };
    if (kKind == RequestKind::kAlltoall) {
      const auto rows = context->input(1).flat<int64_t>();
      if (!request.even_split) request.splits.assign(rows.data(), rows.data() + rows.size());
    }
    session.Submit(std::move(request), std::move(done));
  }

 private:
  static constexpr bool kScatters = kKind == RequestKind::kReducescatter;

  Result<TensorRef> MakeRef(const Topology& topology, tensorflow::OpKernelContext* context, int index) const {
    if (kKind == RequestKind::kBroadcast && topology.rank() == topology.rank_of_global(request_.root)) {
      context->set_output(index, context->input(index));  // the root's result is not written: no copy
      return MakeTensorRef(context->input(index), context->mutable_output(index));
    }
    if (kKind == RequestKind::kAllreduce || kKind == RequestKind::kBroadcast) return InPlaceOrNewOutput(context, index);
    Result<TensorRef> tensor = MakeTensorRef(context->input(index), nullptr);
    if (!kScatters || !tensor.ok() || tensor->shape.empty()) return tensor;  // a scalar: the ranks' verdict refuses it
    const Range mine = RowsOf(tensor->shape[0], topology.size(), topology.rank());
    SMDDP_ASSIGN_OR_RETURN(tensor->output, AllocateRows(context, index, mine.size()));
    return tensor;
  }

  Request request_;
};

// SmddpJoin: this rank has no more data. Done when all ranks have joined; returns the last rank that did.
class JoinKernel final : public CollectiveKernel {
 public:
  using CollectiveKernel::CollectiveKernel;

 protected:
  void Start(Session& session, tensorflow::OpKernelContext* context, smddp::DoneCallback done) override {
    const Result<tensorflow::Tensor*> last = NewOutput(context, 0, tensorflow::TensorShape());
    if (!last.ok()) return done(last.status());
    session.Join(&(*last)->scalar<int32_t>()(), std::move(done));
  }
};

[[maybe_unused]] const bool registered =
    Register<RequestKernel<RequestKind::kAllreduce>>("SmddpAllreduce", {"tensors", "reduced"}, {}) &&
    Register<RequestKernel<RequestKind::kReducescatter>>("SmddpReducescatter", {"tensors", "reduced"}, {}) &&
    Register<RequestKernel<RequestKind::kBroadcast>>("SmddpBroadcast", {}, {"tensors", "received"}) &&
    Register<RequestKernel<RequestKind::kAllgather>>("SmddpAllgather", {}, {"tensors", "gathered"}) &&
    Register<RequestKernel<RequestKind::kAlltoall>>("SmddpAlltoall", {},
                                                    {"tensor", "splits", "received", "received_splits"}) &&
    Register<RequestKernel<RequestKind::kBarrier>>("SmddpBarrier", {}, {}) &&
    Register<JoinKernel>("SmddpJoin", {}, {"last"});

}  // namespace
}  // namespace smddp::ops
