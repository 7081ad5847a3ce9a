// Tensors on a GPU: orders the engine's work on them relative to TensorFlow's, without waiting for either.
#pragma once

#include <vector>

#include "core/status.h"
#include "runtime/api/session.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace smddp::ops {

// Does input `index` lie on a GPU? False where the kernel requests it in host memory.
bool IsOnDevice(tensorflow::OpKernelContext* context, int index);

// Sets `device` of tensors on a GPU whose outputs have been allocated: one mark on `stream` (a cudaStream_t) serves
// all. Tensors without elements get null addresses; when there are no others, nothing is on a GPU.
Status PutInOrder(void* stream, std::vector<TensorRef>* tensors);

// The same with TensorFlow's stream, for the tensors that are the first inputs of `context`. They must be all on the
// GPU or all in host memory; in host memory nothing is done. kUnsupported: a GPU of another vendor.
Status PutInOrder(tensorflow::OpKernelContext* context, std::vector<TensorRef>* tensors);

}  // namespace smddp::ops
