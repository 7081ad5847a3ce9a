#include "ops/device_tensors.h"

#include <memory>

#include "tensorflow/core/framework/device_base.h"
#include "xla/stream_executor/stream.h"

namespace smddp::ops {
namespace {

// The stream on which TensorFlow puts the kernels of this GPU.
Result<void*> ComputeStream(tensorflow::OpKernelContext* context) {
  tensorflow::DeviceContext* const device = context->op_device_context();
  if (device == nullptr || device->stream() == nullptr || device->IsPluggableDevice()) {
    return Status(Reason::kUnsupported, "smddp_tf reduces on CUDA GPUs and on the CPU; " + context->device()->name() +
                                            " is neither. Put the operation on the CPU: device_dense=\"/CPU:0\".");
  }
  return device->stream()->platform_specific_handle().stream;
}

}  // namespace

bool IsOnDevice(tensorflow::OpKernelContext* context, int index) {
  return context->device()->tensorflow_accelerator_device_info() != nullptr &&
         context->input_memory_type(index) == tensorflow::DEVICE_MEMORY;
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

Status PutInOrder(tensorflow::OpKernelContext* context, std::vector<TensorRef>* tensors) {
  if (tensors->empty() || !IsOnDevice(context, 0)) return Status::Ok();
  SMDDP_ASSIGN_OR_RETURN(void* const stream, ComputeStream(context));
  return PutInOrder(stream, tensors);
}

}  // namespace smddp::ops
