// Memory for large results that cannot reuse their input's buffer. TensorFlow would allocate it from the system in
// every step and free it afterwards; the page faults of the first access cost more than the reduction.
#pragma once

#include <cstddef>

#include "tensorflow/core/framework/allocator.h"

namespace smddp::ops {

// Smaller results use TensorFlow's allocator: malloc caches most of them. Those of some MiB it often gives back.
constexpr size_t kLargeResultBytes = 1 << 20;
// The memory that is cached for the next step; the least recently used block is freed first. The limit rises while
// steps ask again for what was freed, by half of the block each time: what a program needs once (a broadcast of
// all variables) is given back, what it needs in every step is kept after a few. It stays at or below what has been in
// use at once.
constexpr size_t kKeptResultBytes = 128 << 20;

// The name of the allocator in ops/allocator.
constexpr char kSharedAllocator[] = "smddp_shared";
// The process's allocator for large results: uses huge pages where available, and caches blocks that TensorFlow
// frees. Never destroyed, because tensors may live until the process ends. Threads: any.
tensorflow::Allocator* ResultMemory();

}  // namespace smddp::ops
