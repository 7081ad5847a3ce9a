// The boundary between TensorFlow and the engine: tensors, dtypes and errors are translated only here.
#pragma once

#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "core/dtype.h"
#include "core/status.h"
#include "runtime/api/session.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/types.pb.h"

namespace smddp::ops {

// An error of the engine as TensorFlow's. The message ends with the reason as a tag, " [smddp:peer_left]", because
// TensorFlow passes nothing else to Python (smddp_tf/exceptions.py reason_of).
absl::Status ToTensorFlow(const Status& status);
// An error of TensorFlow (usually: out of memory) for the engine.
Status FromTensorFlow(const absl::Status& status);

// The engine's dtype; kUnsupported for one that it can neither reduce nor move.
Result<DType> ToEngine(tensorflow::DataType dtype);

// The engine's reference to a tensor. `output` is null for operations that allocate their result later. The reference
// borrows both buffers: the kernel context owns them until `done`.
Result<TensorRef> MakeTensorRef(const tensorflow::Tensor& input, tensorflow::Tensor* output);

// Input `index` with an output of the same shape: the input's own buffer when nothing else reads it, a new one
// otherwise.
Result<TensorRef> InPlaceOrNewOutput(tensorflow::OpKernelContext* context, int index);

// Output `index`.
Result<tensorflow::Tensor*> NewOutput(tensorflow::OpKernelContext* context, int index,
                                      const tensorflow::TensorShape& shape);
// Output `index`, of the shape of input `index` but with `rows` rows.
Result<void*> AllocateRows(tensorflow::OpKernelContext* context, int index, int64_t rows);

// Sets `device` of tensors on a GPU whose outputs have been allocated, without waiting for either side's work: one mark
// on `stream` (a cudaStream_t) serves all. Tensors without elements get null addresses; when there are no others,
// nothing is on a GPU.
Status PutInOrder(void* stream, std::vector<TensorRef>* tensors);

// References to the first `count` inputs of `context`, made by `make`; stops at the first error. Inputs on a GPU are
// put in order with TensorFlow's stream; they must be all there or all in host memory. kUnsupported: a GPU of another
// vendor.
using MakeRef = std::function<Result<TensorRef>(int index)>;
Result<std::vector<TensorRef>> MakeTensorRefs(tensorflow::OpKernelContext* context, int count, const MakeRef& make);

}  // namespace smddp::ops
