// What SMDDP_VERIFY reads from tensors: checksums, and single elements for people.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "compute/compute.h"
#include "core/dtype.h"

namespace smddp {

// Bytes that one rank has and another must have too.
struct Cell {
  std::byte* data = nullptr;
  size_t bytes = 0;
};

// The checksum of the bytes. `nans_are_equal`: NaNs count as one, whatever their bits (a + b and b + a differ in them).
uint64_t ChecksumOf(const Cell& cell, DType dtype, bool nans_are_equal);

// "1.5 (bits 3fc00000)"
std::string ElementText(const void* element, DType dtype, const Compute& compute);

}  // namespace smddp
