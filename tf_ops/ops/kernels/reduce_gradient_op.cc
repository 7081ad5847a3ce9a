// SmddpReduceGradient, SmddpReducePart, SmddpGatherPart: one tensor of a plan. There is one op per gradient, so that
// the reduction of the first bucket runs while the backward pass is still computing the rest.
#include <string>
#include <utility>
#include <vector>

#include "ops/collective_kernel.h"
#include "ops/gpu_kernels.h"
#include "ops/tensor_adapter.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/op_requires.h"

namespace smddp::ops {
namespace {

class ReduceGradientKernel : public CollectiveKernel {
 public:
  explicit ReduceGradientKernel(tensorflow::OpKernelConstruction* construction) : CollectiveKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("plan", &where_.plan));
    OP_REQUIRES_OK(construction, construction->GetAttr("index", &where_.index));
    OP_REQUIRES_OK(construction, construction->GetAttr("alone", &where_.alone));
    where_.site = site();
    const Arithmetic reduction = ReadArithmetic(construction);
    changes_alone_ = reduction.prescale * reduction.postscale != 1.0;
  }

 protected:
  void Start(Session& session, tensorflow::OpKernelContext* context, smddp::DoneCallback done) override {
    if (session.topology().size() == 1 && !changes_alone_) {  // nothing is sent, so nothing is narrowed either
      context->set_output(0, context->input(0));
      return done(Status::Ok());
    }
    Result<std::vector<TensorRef>> tensors =
        MakeTensorRefs(context, 1, [&](int index) { return MakeRef(context, index); });
    if (!tensors.ok()) return done(tensors.status());
    session.ReducePlanned(WhereIn(context), tensors->front(), std::move(done));
  }
  Canceller OnCancel(tensorflow::OpKernelContext* context) const override {
    return [where = WhereIn(context)](Session& session) { session.CancelPlanned(where); };
  }

  bool changes_alone_ = false;  // does the result of a single rank differ from its gradient?
  virtual Result<TensorRef> MakeRef(tensorflow::OpKernelContext* context, int index) const {
    return InPlaceOrNewOutput(context, index);
  }

 private:
  PlannedTensor WhereIn(tensorflow::OpKernelContext* context) const {
    PlannedTensor where = where_;
    where.run = RunOf(context);
    return where;
  }

  PlannedTensor where_;
};

class PartKernel final : public ReduceGradientKernel {
 public:
  explicit PartKernel(tensorflow::OpKernelConstruction* construction) : ReduceGradientKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("parts", &parting_.parts));
    OP_REQUIRES_OK(construction, construction->GetAttr("place", &place_));
    OP_REQUIRES_OK(construction, construction->GetAttr("shape", &shape_));
    changes_alone_ = true;
    parting_.mode = type_string() == "SmddpGatherPart" ? PartMode::kGather : PartMode::kReduce;
  }

 private:
  // The graph may be of an earlier session, in which this rank had another part.
  void Start(Session& session, tensorflow::OpKernelContext* context, smddp::DoneCallback done) override {
    const Result<int> place = session.PlaceInParts(session.topology().rank(), parting_.parts);
    if (place.ok() && *place == place_) return ReduceGradientKernel::Start(session, context, std::move(done));
    done(Status(Reason::kBadArgument, "This graph was traced for part ", place_, " of ", parting_.parts,
                ". In this session ",
                place.ok() ? "the rank has part " + std::to_string(*place) : place.status().message(),
                ". Make the optimizer and the model anew, and load a saved state."));
  }
  Result<TensorRef> MakeRef(tensorflow::OpKernelContext* context, int index) const override {
    const tensorflow::Tensor& input = context->input(index);
    SMDDP_ASSIGN_OR_RETURN(tensorflow::Tensor* const output, NewOutput(context, index, shape_));
    const bool gathers = parting_.mode == PartMode::kGather;
    SMDDP_ASSIGN_OR_RETURN(TensorRef ref, MakeTensorRef(gathers ? *output : input, output));
    ref.input = input.data();
    ref.parting = parting_;
    const tensorflow::Tensor& part = gathers ? input : *output;
    if (part.NumElements() == parting_.Length(ref.elements())) return ref;
    return Status(Reason::kBadArgument, "Expected a part of ", parting_.Length(ref.elements()),
                  " elements. Received: ", part.NumElements(), ", for ", tensor_name(), ".");
  }

  Parting parting_;
  int place_ = 0;
  tensorflow::TensorShape shape_;
};

[[maybe_unused]] const bool registered =
    Register<ReduceGradientKernel>("SmddpReduceGradient", {"gradient", "reduced"}, {}) &&
    Register<PartKernel>("SmddpReducePart", {}, {"gradient", "reduced"}) &&
    Register<PartKernel>("SmddpGatherPart", {}, {"gradient", "reduced"});

}  // namespace
}  // namespace smddp::ops
