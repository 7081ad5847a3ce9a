// Included before all other headers where CMake finds that TensorFlow's headers need an LLVM header that its wheel
// lacks (2.19). It replaces the header that includes it: a class in the signature of a function that is not called
// here.
#pragma once

#define XLA_STREAM_EXECUTOR_GPU_TMA_METADATA_H_

namespace stream_executor::gpu {

class TmaDescriptor {};

}  // namespace stream_executor::gpu
