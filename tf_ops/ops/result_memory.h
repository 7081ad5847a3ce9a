// Memory for large results that cannot take their input's place. TensorFlow gets such memory fresh from the system for
// every step and gives it back after it; touching every page of it for the first time costs more than the reduction.
#pragma once

#include <cstddef>

#include "tensorflow/core/framework/allocator.h"

namespace smddp::ops {

// Smaller ones are left to TensorFlow: malloc keeps them.
constexpr size_t kLargeResultBytes = 4 << 20;
// What is kept for the next step at most; the longest unused is given back first.
constexpr size_t kKeptResultBytes = 128 << 20;

// The process's allocator for large results: huge pages where the system has them, kept when TensorFlow frees them.
// Never destroyed, because tensors may outlive everything. Threads: any.
tensorflow::Allocator* ResultMemory();

}  // namespace smddp::ops
