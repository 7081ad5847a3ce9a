#include "ops/tensor_adapter.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "absl/strings/string_view.h"
#include "tensorflow/core/framework/device_base.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow/core/framework/types.h"
#include "xla/stream_executor/stream.h"

namespace smddp::ops {
namespace {

using absl::StatusCode;
// By Reason.
constexpr StatusCode kCodes[] = {
    StatusCode::kOk,                  // kOk
    StatusCode::kInvalidArgument,     // kBadArgument
    StatusCode::kFailedPrecondition,  // kBadState
    StatusCode::kFailedPrecondition,  // kDisagreement
    StatusCode::kFailedPrecondition,  // kTensorsDiffer
    StatusCode::kUnavailable,         // kPeerLeft
    StatusCode::kUnavailable,         // kPeerRaised
    StatusCode::kUnavailable,         // kPeerLost
    StatusCode::kUnavailable,         // kTransportFailed
    StatusCode::kDeadlineExceeded,    // kTimedOut
    StatusCode::kAborted,             // kStepGivenUp
    StatusCode::kAborted,             // kShutDown
    StatusCode::kResourceExhausted,   // kNoResources
    StatusCode::kUnimplemented,       // kUnsupported
    StatusCode::kDataLoss,            // kDataLoss
    StatusCode::kInternal,            // kInternal
};
static_assert(sizeof(kCodes) / sizeof(kCodes[0]) == static_cast<size_t>(kLastReason) + 1);

// By DType.
constexpr tensorflow::DataType kDTypes[] = {tensorflow::DT_UINT8,  tensorflow::DT_INT8,      tensorflow::DT_INT32,
                                            tensorflow::DT_INT64,  tensorflow::DT_HALF,      tensorflow::DT_BFLOAT16,
                                            tensorflow::DT_FLOAT,  tensorflow::DT_DOUBLE,    tensorflow::DT_BOOL,
                                            tensorflow::DT_INT16,  tensorflow::DT_UINT16,    tensorflow::DT_UINT32,
                                            tensorflow::DT_UINT64, tensorflow::DT_COMPLEX64, tensorflow::DT_COMPLEX128};
static_assert(std::size(kDTypes) == static_cast<size_t>(kDTypeCount));

// The stream on which TensorFlow puts the kernels of this GPU.
Result<void*> ComputeStream(tensorflow::OpKernelContext* context) {
  tensorflow::DeviceContext* const device = context->op_device_context();
  if (device == nullptr || device->stream() == nullptr || device->IsPluggableDevice()) {
    return Status(Reason::kUnsupported, "smddp_tf reduces on CUDA GPUs and on the CPU; ", context->device()->name(),
                  " is neither. Put the operation on the CPU: device_dense=\"/CPU:0\".");
  }
  return device->stream()->platform_specific_handle().stream;
}

// Does input `index` lie on a GPU? False where the kernel requests it in host memory.
bool IsOnDevice(tensorflow::OpKernelContext* context, int index) {
  return context->device()->tensorflow_accelerator_device_info() != nullptr &&
         context->input_memory_type(index) == tensorflow::DEVICE_MEMORY;
}

}  // namespace

absl::Status ToTensorFlow(const Status& status) {
  if (status.ok()) return absl::OkStatus();
  const std::string tag = std::string(" [smddp:") + NameOf(status.reason()) + "]";
  return absl::Status(kCodes[static_cast<int>(status.reason())], status.message() + tag);
}

Status FromTensorFlow(const absl::Status& status) {
  if (status.ok()) return Status::Ok();
  const Reason reason = absl::IsResourceExhausted(status) ? Reason::kNoResources : Reason::kInternal;
  return Status(reason, std::string(status.message()));
}

Result<DType> ToEngine(tensorflow::DataType dtype) {
  const auto found = std::find(std::begin(kDTypes), std::end(kDTypes), dtype);
  if (found != std::end(kDTypes)) return static_cast<DType>(found - std::begin(kDTypes));
  return Status(Reason::kUnsupported, "Tensors of dtype ", tensorflow::DataTypeString(dtype),
                " cannot be sent between ranks.");
}

Result<TensorRef> MakeTensorRef(const tensorflow::Tensor& input, tensorflow::Tensor* output) {
  TensorRef ref;
  SMDDP_ASSIGN_OR_RETURN(ref.dtype, ToEngine(input.dtype()));
  for (const auto dimension : input.shape()) ref.shape.push_back(dimension.size);
  ref.input = input.data();
  if (output != nullptr) ref.output = output->data();
  return ref;
}

Result<TensorRef> InPlaceOrNewOutput(tensorflow::OpKernelContext* context, int index) {
  tensorflow::Tensor* output = nullptr;
  const tensorflow::Tensor& input = context->input(index);
  const absl::Status allocated = context->forward_input_or_allocate_output({index}, index, input.shape(), &output);
  if (!allocated.ok()) return FromTensorFlow(allocated);
  return MakeTensorRef(input, output);
}

Result<tensorflow::Tensor*> NewOutput(tensorflow::OpKernelContext* context, int index,
                                      const tensorflow::TensorShape& shape) {
  tensorflow::Tensor* output = nullptr;
  const absl::Status allocated = context->allocate_output(index, shape, &output);
  if (!allocated.ok()) return FromTensorFlow(allocated);
  return output;
}

Result<void*> AllocateRows(tensorflow::OpKernelContext* context, int index, int64_t rows) {
  tensorflow::TensorShape shape = context->input(index).shape();
  shape.set_dim(0, rows);
  SMDDP_ASSIGN_OR_RETURN(tensorflow::Tensor* const output, NewOutput(context, index, shape));
  return output->data();
}

Status PutInOrder(void* stream, std::vector<TensorRef>* tensors) {
  std::shared_ptr<const PooledEvent> work;
  for (TensorRef& tensor : *tensors) {
    if (tensor.elements() == 0) {
      tensor.input = tensor.output = nullptr;
    } else if (work == nullptr) {
      SMDDP_ASSIGN_OR_RETURN(work, WorkOnDevice(tensor.input, stream));
    }
  }
  for (TensorRef& tensor : *tensors) tensor.device = work;
  return Status::Ok();
}

Result<std::vector<TensorRef>> MakeTensorRefs(tensorflow::OpKernelContext* context, int count, const MakeRef& make) {
  std::vector<TensorRef> refs;
  refs.reserve(count);
  for (int index = 0; index < count; ++index) {
    SMDDP_ASSIGN_OR_RETURN(TensorRef ref, make(index));
    refs.push_back(std::move(ref));
  }
  if (refs.empty() || !IsOnDevice(context, 0)) return refs;
  SMDDP_ASSIGN_OR_RETURN(void* const stream, ComputeStream(context));
  SMDDP_RETURN_IF_ERROR(PutInOrder(stream, &refs));
  return refs;
}

}  // namespace smddp::ops
