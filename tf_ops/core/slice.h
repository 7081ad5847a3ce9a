// The one definition of where slices begin and end: three stages on many ranks must agree to the byte.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/buffer.h"

namespace smddp {

constexpr size_t kSliceAlignment = 128;  // bytes; a multiple of every element size and of the cache line

// The part of `elements` elements of `element_size` bytes that slice `index` of `parts` owns. Every slice has the
// same size, rounded up to kSliceAlignment bytes, except that the last ones are shortened by the end (and may be
// empty). Slices are disjoint, in order, and cover everything.
Range SliceOf(int64_t elements, size_t element_size, int parts, int index);

// The rows that part `index` of `parts` gets of a reducescatter: rows / parts, and one more for the first rows %
// parts. Horovod's division.
Range RowsOf(int64_t rows, int parts, int index);

// Reductions of which every rank gets a part, and gathers of such parts (collectives/node/parts.h).
enum class PartMode : uint8_t {
  kWhole,   // every rank gets the whole sum
  kReduce,  // every rank gets its part of the sum
  kGather,  // every rank brings its part and gets the whole
};

struct Parting {
  PartMode mode = PartMode::kWhole;
  int parts = 1;

  // Parts begin at multiples of so many elements: what computes with a part by vector instructions then handles each
  // element as in the whole tensor, whose last elements may be computed one by one, and rounded differently.
  static constexpr int64_t kAlignment = 16;

  bool whole() const { return mode == PartMode::kWhole; }
  // The length of each part of a tensor of `elements` elements; the last ones are filled up with zeros.
  int64_t Length(int64_t elements) const {
    const int64_t together = parts * kAlignment;
    return (elements + together - 1) / together * kAlignment;
  }
};

}  // namespace smddp
