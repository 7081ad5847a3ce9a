// Element types and reduction operators, as the engine names them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include "core/status.h"

namespace smddp {

// The numbers travel between ranks and reach Python: append, never renumber.
enum class DType : uint8_t {
  kUInt8 = 0,
  kInt8 = 1,
  kInt32 = 2,
  kInt64 = 3,
  kFloat16 = 4,
  kBFloat16 = 5,
  kFloat32 = 6,
  kFloat64 = 7,
  kBool = 8,
  kInt16 = 9,
  kUInt16 = 10,
  // Moved (broadcast, allgather, alltoall), never reduced:
  kUInt32 = 11,
  kUInt64 = 12,
  kComplex64 = 13,
  kComplex128 = 14,
};
constexpr int kDTypeCount = 15;

size_t SizeOf(DType dtype);       // bytes of one element
const char* NameOf(DType dtype);  // NumPy's name: "float32", "bfloat16", ...
Result<DType> DTypeFromName(const std::string& name);
bool IsFloating(DType dtype);   // float16, bfloat16, float32, float64
bool IsHalf(DType dtype);       // float16, bfloat16
bool IsReducible(DType dtype);  // has arithmetic in compute/

// The address of an element of an array.
template <class T>
T* ElementAt(T* base, int64_t element, DType dtype) {
  using Byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
  return static_cast<Byte*>(base) + element * static_cast<int64_t>(SizeOf(dtype));
}

// Horovod's numbers, so that scripts that print or compare them see the same integers.
enum class ReduceOp : uint8_t { kAverage = 0, kSum = 1, kAdasum = 2, kMin = 3, kMax = 4, kProduct = 5 };

const char* NameOf(ReduceOp op);

}  // namespace smddp
