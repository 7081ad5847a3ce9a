// Arithmetic on local memory. One implementation per kind of processor; other folders include only this header.
//
// Threads:   stateless; any thread may call.
// Memory:    nothing is allocated or kept. Pointers need only the alignment of their element type.
// Aliasing:  `into` may be the same address as a source (in place); partial overlap is not allowed.
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace smddp {

// value -> value * factor / divisor. Floating types multiply by factor / divisor, computed once in float64 and
// applied in float32 (half types) or in the element's own precision. Integers are multiplied by `factor` in float64
// and truncated toward zero when `factor` is not 1, then divided by `divisor` as integers (toward zero): an exact
// average. bool ignores both.
struct Scaling {
  double factor = 1.0;
  int64_t divisor = 1;

  bool identity() const { return factor == 1.0 && divisor == 1; }
};

class Compute {
 public:
  virtual ~Compute() = default;

  // The instruction set in use, for `build_info`: "avx512", "avx2", "generic".
  virtual const char* name() const = 0;

  // into[i] = to(scale(from[i])). Same dtype on both sides, or any two of float16, bfloat16, float32, float64.
  // Rounds to nearest, ties to even; overflow becomes infinity; NaN stays NaN. The identity with equal dtypes is a
  // plain copy, for every dtype.
  virtual void Cast(void* into, DType to, const void* from, DType from_dtype, int64_t elements,
                    const Scaling& scaling) const = 0;
  // The same for an `into` that overlaps no source and that nobody reads soon: stored past the caches, where the
  // processor can do that, so that its old contents are not read first. The stores are visible to other threads like
  // ordinary ones.
  virtual void CastUncached(void* into, DType to, const void* from, DType from_dtype, int64_t elements,
                            const Scaling& scaling) const {
    Cast(into, to, from, from_dtype, elements, scaling);
  }

  // into[i] = sources[0][i] op sources[1][i] op ... in exactly this order, so results are reproducible bit for bit.
  // float16 and bfloat16 accumulate in float32 and are rounded once at the end. kAverage and kAdasum are not accepted
  // here: the session lowers kAverage to kSum with a divisor, and collectives/rail/adasum.cc computes kAdasum. bool:
  // Sum and Max are "or", Product and Min are "and". NaN propagates through Min and Max as in NumPy. Needs
  // IsReducible(dtype) and count >= 1; sources may alias `into`.
  virtual void Reduce(void* into, const void* const* sources, int count, int64_t elements, DType dtype,
                      ReduceOp op) const = 0;

  // float32 as 8-bit numbers, with a scale for every block of 256 (bfloat16, rounded up; largest finite magnitude /
  // 126): each element is rounded to the nearest multiple of its block's scale, ties to even. Infinities and NaN stay
  // what they are. `into` has QuantisedBytes(elements).
  // `values` are replaced by what Dequantise will make of them. `errors`: is added to the values first, and replaced
  // by what was rounded away (0 where not finite); null: neither.
  virtual void Quantise(void* into, float* values, float* errors, int64_t elements) const = 0;
  // into[i] = (add ? into[i] : 0) + from[i].
  virtual void Dequantise(float* into, const void* from, int64_t elements, bool add) const = 0;
};

// 1 1/128 bytes an element.
size_t QuantisedBytes(int64_t elements);

// The implementation for this machine, chosen once by CPU feature detection (or by SMDDP_CPU_ISA through `requested`:
// "auto", "generic", "avx2", "avx512"). When this CPU lacks the requested one, the best available one is returned.
const Compute& CpuCompute(const char* requested = "auto");

}  // namespace smddp
