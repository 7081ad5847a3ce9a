// SmddpCompiledCollective for XLA: one custom call for all its tensors. The only file that needs the compiler's
// headers.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ops/compiled_call.h"
#include "ops/gpu_kernels.h"
#include "ops/tensor_adapter.h"
#include "ops/xla/custom_call.h"
#include "tensorflow/compiler/tf2xla/type_util.h"
#include "tensorflow/compiler/tf2xla/xla_compiler.h"
#include "tensorflow/compiler/tf2xla/xla_op_kernel.h"
#include "tensorflow/core/framework/op_requires.h"

namespace smddp::ops {
namespace {

constexpr char kCpu[] = "XLA_CPU_JIT";
constexpr char kGpu[] = "XLA_GPU_JIT";

xla::Shape RowMajor(const xla::Shape& shape) {
  return xla::ShapeUtil::MakeShapeWithDescendingLayout(shape.element_type(), shape.dimensions());
}

class CompiledCollectiveXlaKernel final : public tensorflow::XlaOpKernel {
 public:
  explicit CompiledCollectiveXlaKernel(tensorflow::OpKernelConstruction* construction)
      : tensorflow::XlaOpKernel(construction), call_(ReadCompiledCall(construction)) {
    if (construction->device_type() == tensorflow::DeviceType(kGpu)) {
      OP_REQUIRES_OK(construction, ToTensorFlow(CheckForGpu()));
    } else {
      one_by_one_ = call_.kind == RequestKind::kPlan && xla_calls::ApiVersion() == xla_calls::kTypedFfi;
    }
  }

  void Compile(tensorflow::XlaOpKernelContext* context) override {
    const int count = context->num_outputs() - 1;
    xla_calls::Description description;
    description.call = call_;
    std::vector<xla::XlaOp> operands;
    std::vector<xla::Shape> operand_shapes, result_shapes;
    for (int index = 0; index < context->num_inputs(); ++index) {
      const auto shape = context->InputXlaShape(index);
      OP_REQUIRES_OK(context, shape.status());
      OP_REQUIRES(context, shape->IsArray() && !shape->is_dynamic(),
                  absl::InvalidArgumentError("'" + call_.name + "' needs tensors whose shape XLA knows. Received: " +
                                             xla::ShapeUtil::HumanString(*shape) + "."));
      operands.push_back(context->Input(index));
      operand_shapes.push_back(RowMajor(*shape));
      if (index >= count) continue;
      const Status described = Describe(context->input_type(index), operand_shapes.back(), &description);
      OP_REQUIRES_OK(context, ToTensorFlow(described));
      result_shapes.push_back(ResultShape(operand_shapes.back()));
    }
    result_shapes.push_back(xla::ShapeUtil::MakeShapeWithDescendingLayout(xla::S32, {}));

    if (one_by_one_) description.stay = std::make_shared<std::atomic<bool>>(false);
    const int64_t number = xla_calls::Remember(std::move(description));
    if (one_by_one_) StartEach(context->builder(), number, count, &operands, &operand_shapes);
    const xla::XlaOp results =
        Call(context->builder(), xla_calls::kTargetName, operands, xla::ShapeUtil::MakeTupleShape(result_shapes),
             operand_shapes, xla_calls::BackendConfig(number, count, operands.size()), InPlace(count));
    for (int index = 0; index <= count; ++index) context->SetOutput(index, xla::GetTupleElement(results, index));
  }

 private:
  using Aliasing = std::vector<std::pair<xla::ShapeIndex, std::pair<int64_t, xla::ShapeIndex>>>;

  static xla::XlaOp Call(xla::XlaBuilder* builder, const char* target, const std::vector<xla::XlaOp>& operands,
                         const xla::Shape& shape, const std::vector<xla::Shape>& operand_shapes,
                         const std::string& config, const Aliasing& aliasing) {
    return xla::CustomCallWithLayout(builder, target, operands, shape, operand_shapes, config, /*has_side_effect=*/true,
                                     aliasing, /*literal=*/nullptr, xla::CustomCallSchedule::SCHEDULE_NONE,
                                     static_cast<xla::CustomCallApiVersion>(xla_calls::ApiVersion()));
  }

  // Lets each of the first `count` operands be handed over as soon as it is there, and replaces it by the result of
  // that. The handle of this run becomes the operand after them.
  static void StartEach(xla::XlaBuilder* builder, int64_t number, int count, std::vector<xla::XlaOp>* operands,
                        std::vector<xla::Shape>* shapes) {
    const xla::Shape handle_shape = xla::ShapeUtil::MakeShapeWithDescendingLayout(xla::S64, {});
    const xla::XlaOp handle =
        Call(builder, xla_calls::kStartName, {operands->begin() + count, operands->end()}, handle_shape,
             {shapes->begin() + count, shapes->end()}, xla_calls::StartConfig(number, xla_calls::kBegin), {});
    for (int place = 0; place < count; ++place) {
      const xla::Shape shape = (*shapes)[place];
      (*operands)[place] = Call(builder, xla_calls::kStartName, {(*operands)[place], handle}, shape,
                                {shape, handle_shape}, xla_calls::StartConfig(number, place), {{{}, {0, {}}}});
    }
    operands->insert(operands->begin() + count, handle);
    shapes->insert(shapes->begin() + count, handle_shape);
  }

  Status CheckForGpu() const {
    if (!EngineReachesGpus()) {
      return Status(
          Reason::kUnsupported,
          "smddp_tf cannot access this GPU, so it cannot reduce in a function compiled by XLA for it. `smddprun "
          "--check-build` shows the reason. Use jit_compile=False, in model.compile or in the tf.function that holds '",
          call_.name, "'.");
    }
    if (call_.kind == RequestKind::kBroadcast || call_.kind == RequestKind::kAllgather) {
      return Status(Reason::kUnsupported,
                    "hvd.broadcast and hvd.allgather are not supported in a function that XLA compiles for a GPU; "
                    "hvd.allreduce, the tape and the optimizer are. Call '",
                    call_.name, "' before or after the compiled function.");
    }
    return Status::Ok();
  }

  static Status Describe(tensorflow::DataType dtype, const xla::Shape& shape, xla_calls::Description* description) {
    TensorRef tensor;
    SMDDP_ASSIGN_OR_RETURN(tensor.dtype, ToEngine(dtype));
    tensor.shape.assign(shape.dimensions().begin(), shape.dimensions().end());
    description->tensors.push_back(std::move(tensor));
    return Status::Ok();
  }

  // Result i uses the memory of operand i: allocating memory in every step costs more than the reduction. XLA copies
  // an operand that is still needed.
  Aliasing InPlace(int count) const {
    Aliasing aliasing;
    if (call_.kind == RequestKind::kAllgather) return aliasing;
    for (int index = 0; index < count; ++index) aliasing.push_back({{index}, {index, {}}});
    return aliasing;
  }

  xla::Shape ResultShape(const xla::Shape& operand) const {
    xla::Shape shape = operand;
    if (call_.kind == RequestKind::kAllgather) shape.set_dimensions(0, operand.dimensions(0) * call_.size);
    return shape;
  }

  const CompiledCall call_;
  bool one_by_one_ = false;  // gradients are handed over while others are computed
};

// Not REGISTER_XLA_OP: TensorFlow processes those registrations only once, at the first compilation in the process,
// and this library may be loaded later.
REGISTER_KERNEL_BUILDER(Name("SmddpCompiledCollective").Device(kCpu), CompiledCollectiveXlaKernel);
REGISTER_KERNEL_BUILDER(Name("SmddpCompiledCollective").Device(kGpu), CompiledCollectiveXlaKernel);

}  // namespace
}  // namespace smddp::ops
