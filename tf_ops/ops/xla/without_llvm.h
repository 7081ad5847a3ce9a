// Included before everything else where CMake finds that TensorFlow's headers need one of LLVM that its wheel lacks
// (2.19). It stands in for the header that asks for it: a class in the signature of a function that nobody here calls.
#pragma once

#define XLA_STREAM_EXECUTOR_GPU_TMA_METADATA_H_

namespace stream_executor::gpu {

class TmaDescriptor {};

}  // namespace stream_executor::gpu
