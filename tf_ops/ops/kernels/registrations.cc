// The ops as a graph sees them: names, attributes, shapes. All are stateful, so that TensorFlow does not fold, prune
// or merge them; Python takes them out of automatic control dependencies (smddp_tf/collectives/graph.py). All are
// marked as communication; otherwise TensorFlow would report a departed peer as an internal error.
//
// Attributes:
//   tensor_name    the name by which the ranks match; for SmddpReduceGradient only for messages
//   process_set    number of the set whose ranks take part; 0 is all ranks
//   site           index among the ops of that name, or the uses of that plan, in a graph that runs; set, like the
//                  next two, by ops/call_sites_pass.cc when TensorFlow prepares the graph
//   plan_key       the key of the plan
//   alone          session.h PlannedTensor::alone
//   reduce_op      number of smddp::ReduceOp
//   *_bits         bits of a float64 (ops/collective_kernel.h)
//   wire_dtype     the dtype to which wider floating tensors are cast between ranks; 'int8': between nodes alone, in
//                  blocks; 'auto': which of these the link needs; '' for none
#include <string>

#include "absl/status/status.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace smddp::ops {
namespace {

using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

// Every output has the shape of the input with the same number.
absl::Status SameShapes(InferenceContext* context) {
  for (int index = 0; index < context->num_inputs(); ++index) context->set_output(index, context->input(index));
  return absl::OkStatus();
}

// The input's shape with an unknown first dimension. A scalar is an error.
absl::Status OtherRows(InferenceContext* context, int index) {
  ShapeHandle shape;
  TF_RETURN_IF_ERROR(context->WithRankAtLeast(context->input(index), 1, &shape));
  TF_RETURN_IF_ERROR(context->ReplaceDim(shape, 0, context->UnknownDim(), &shape));
  context->set_output(index, shape);
  return absl::OkStatus();
}

absl::Status OtherRowsInAll(InferenceContext* context) {
  for (int index = 0; index < context->num_inputs(); ++index) TF_RETURN_IF_ERROR(OtherRows(context, index));
  return absl::OkStatus();
}

// The number of ranks is not known to a graph.
absl::Status AlltoallShapes(InferenceContext* context) {
  context->set_output(1, context->Vector(InferenceContext::kUnknownDim));
  return OtherRows(context, 0);
}

// Output i has the shape of input i; for an allgather it holds one such block for every rank. The last output is the
// token.
absl::Status CompiledShapes(InferenceContext* context) {
  std::string kind;
  int ranks = 1;
  TF_RETURN_IF_ERROR(context->GetAttr("kind", &kind));
  TF_RETURN_IF_ERROR(context->GetAttr("gathered_ranks", &ranks));
  const int tensors = context->num_outputs() - 1;
  for (int index = 0; index < tensors; ++index) {
    ShapeHandle shape = context->input(index);
    if (kind == "allgather") {
      DimensionHandle rows;
      TF_RETURN_IF_ERROR(context->WithRankAtLeast(shape, 1, &shape));
      TF_RETURN_IF_ERROR(context->Multiply(context->Dim(shape, 0), ranks, &rows));
      TF_RETURN_IF_ERROR(context->ReplaceDim(shape, 0, rows, &shape));
    }
    context->set_output(index, shape);
  }
  context->set_output(tensors, context->Scalar());
  return absl::OkStatus();
}

}  // namespace

#define SMDDP_REDUCIBLE "{uint8, int8, uint16, int16, int32, int64, half, bfloat16, float, double, bool}"
#define SMDDP_MOVABLE                                                                                \
  "{uint8, int8, int16, int32, int64, uint16, uint32, uint64, half, bfloat16, float, double, bool, " \
  "complex64, complex128}"

// What all that are matched have, all collectives besides, and all that reduce.
#define SMDDP_MATCHED(name) \
  REGISTER_OP(name).Attr("tensor_name: string").Attr("process_set: int = 0").Attr("site: int >= 0 = 0").SetIsStateful()
#define SMDDP_COLLECTIVE(name) SMDDP_MATCHED(name).SetIsDistributedCommunication()

SMDDP_MATCHED("SmddpRunBegins")
    .Attr("plan: int >= -1 = -1")
    .Attr("alone: bool = false")
    .SetShapeFn(tensorflow::shape_inference::NoOutputs)
    .Doc(
        "Runs before all that may fail in a graph, and says that the run will bring all tensors of `plan`, or without "
        "one the request `tensor_name`. Made by ops/kernels/run_begins.cc.");

#define SMDDP_REDUCTION(name)      \
  SMDDP_COLLECTIVE(name)           \
      .Attr("reduce_op: int")      \
      .Attr("prescale_bits: int")  \
      .Attr("postscale_bits: int") \
      .Attr("wire_dtype: {'', 'float16', 'bfloat16', 'int8', 'auto'} = ''")

SMDDP_REDUCTION("SmddpAllreduce")
    .Input("tensors: T")
    .Output("reduced: T")
    .Attr("T: list(" SMDDP_REDUCIBLE ") >= 1")
    .SetShapeFn(SameShapes)
    .Doc("Reduces a list of tensors over all ranks. Shapes and dtypes agree on all ranks.");

#define SMDDP_PLANNED(name)                       \
  SMDDP_REDUCTION(name)                           \
      .Input("gradient: T")                       \
      .Output("reduced: T")                       \
      .Attr("T: {half, bfloat16, float, double}") \
      .Attr("plan: int >= 0")                     \
      .Attr("index: int >= 0")                    \
      .Attr("plan_key: string = ''")              \
      .Attr("alone: bool = false")

SMDDP_PLANNED("SmddpReduceGradient")
    .SetShapeFn(SameShapes)
    .Doc(
        "Reduces tensor `index` of a registered plan. The plan says how; the other attributes repeat it for the "
        "op's own gradient.");

#define SMDDP_PARTS(name)      \
  SMDDP_PLANNED(name)          \
      .Attr("parts: int >= 1") \
      .Attr("place: int >= 0") \
      .Attr("shape: shape")    \
      .SetShapeFn(tensorflow::shape_inference::ExplicitShape)

SMDDP_PARTS("SmddpReducePart").Doc("The same of a plan that reduces to parts: this rank's part, filled up with zeros.");

SMDDP_PARTS("SmddpGatherPart")
    .Doc("A tensor of that shape from the parts that the ranks bring, by a plan that gathers parts.");

SMDDP_COLLECTIVE("SmddpBroadcast")
    .Input("tensors: T")
    .Output("received: T")
    .Attr("T: list(" SMDDP_MOVABLE ") >= 1")
    .Attr("root_rank: int")
    .SetShapeFn(SameShapes)
    .Doc("Replaces a list of tensors by the one of rank `root_rank`. Shapes and dtypes agree on all ranks.");

SMDDP_COLLECTIVE("SmddpAllgather")
    .Input("tensors: T")
    .Output("gathered: T")
    .Attr("T: list(" SMDDP_MOVABLE ") >= 1")
    .SetShapeFn(OtherRowsInAll)
    .Doc("Concatenates the tensors of all ranks along the first dimension, which alone may differ between ranks.");

SMDDP_COLLECTIVE("SmddpAlltoall")
    .Input("tensor: T")
    .Input("splits: int64")
    .Output("received: T")
    .Output("received_splits: int32")
    .Attr("T: " SMDDP_MOVABLE)
    .Attr("even_split: bool = false")
    .SetShapeFn(AlltoallShapes)
    .Doc(
        "Sends `splits[r]` consecutive rows to each rank r, or as many to each with `even_split`, where `splits` is "
        "not read. Received are the rows from each rank, in rank order, and how many those are.");

SMDDP_REDUCTION("SmddpReducescatter")
    .Input("tensors: T")
    .Output("reduced: T")
    .Attr("T: list(" SMDDP_REDUCIBLE ") >= 1")
    .SetShapeFn(OtherRowsInAll)
    .Doc(
        "Reduces a list of tensors over all ranks; each rank gets an equal part of the rows, the first ones one more "
        "where they do not divide. Shapes and dtypes agree on all ranks.");

SMDDP_COLLECTIVE("SmddpBarrier")
    .SetShapeFn(tensorflow::shape_inference::NoOutputs)
    .Doc("Waits until every rank has reached it.");

SMDDP_COLLECTIVE("SmddpJoin")
    .Output("last: int32")
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc("This rank has no more data. Waits until all ranks have joined; `last` is the rank that joined last.");

REGISTER_OP("SmddpTopologyValue")
    .Output("value: int32")
    .Attr("what: {'size', 'rank', 'rank_in_set', 'local_size', 'local_rank', 'included'}")
    .Attr("process_set: int = 0")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc(
        "What `hvd.size()` and its like say when the op runs; `included`: 1 or 0, below 0 where there is no such set.");

SMDDP_COLLECTIVE("SmddpCompiledCollective")
    .Input("tensors: T")
    .Input("after: A")
    .Output("results: T")
    .Output("token: int32")
    .Attr("T: list(" SMDDP_MOVABLE ") >= 1")
    .Attr("A: list(type) >= 0")
    .Attr("kind: {'reduce_gradients', 'allreduce', 'broadcast', 'allgather'}")
    .Attr("plan: int = 0")
    .Attr("indices: list(int) = []")
    .Attr("alone: bool = false")
    .Attr("reduce_op: int = 0")
    .Attr("prescale_bits: int = 0")
    .Attr("postscale_bits: int = 0")
    .Attr("wire_dtype: {'', 'float16', 'bfloat16', 'int8', 'auto'} = ''")
    .Attr("root_rank: int = 0")
    .Attr("gathered_ranks: int >= 0 = 0")
    .Attr("traced_rank: int >= -1 = -1")
    .SetShapeFn(CompiledShapes)
    .Doc(
        "Any of the above inside a function that XLA compiles. XLA runs independent ops in an order of its own, so "
        "each takes something of the one before it as `after` and gives a `token`; neither holds a value that matters. "
        "Shapes are right for `gathered_ranks` ranks (0: any number) and for `traced_rank` (-1: any rank).");

}  // namespace smddp::ops
