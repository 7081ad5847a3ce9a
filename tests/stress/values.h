// What ranks bring and what must come out. Small whole numbers, exact in every dtype.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/dtype.h"

namespace stress {

using Bytes = std::vector<std::byte>;

// Element `i` of `data` as a number, and back. Reducible dtypes.
double Read(smddp::DType dtype, const Bytes& data, int64_t i);
void Write(smddp::DType dtype, Bytes* data, int64_t i, double value);

// What `rank` brings to a reduction.
double Brought(smddp::ReduceOp op, int rank, int salt, int64_t i);
// Of the ranks in `ranks`; an average divides by `size`.
double Reduced(smddp::ReduceOp op, smddp::DType dtype, const std::vector<int>& ranks, int size, int salt, int64_t i);
bool Same(smddp::DType dtype, double expected, double came);

// Bytes for what is only moved.
std::byte Pattern(int rank, int salt, size_t i);

}  // namespace stress
