#include "runtime/verify_memory.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <limits>

#include "core/checksum.h"

namespace smddp {
namespace {

constexpr size_t kBlockBytes = 4096;

// Without the sign, and as the signed number that it then is, a NaN is above the infinity.
template <class Bits>
bool IsNaN(Bits bits, Bits infinity) {
  return (bits & std::numeric_limits<Bits>::max()) > infinity;
}

template <class Bits>
bool AnyNaN(const Bits* block, Bits infinity) {
  Bits any = 0;
  for (size_t i = 0; i < kBlockBytes / sizeof(Bits); ++i) any |= IsNaN(block[i], infinity);
  return any != 0;
}

// `infinity`: its bits in this dtype.
template <class Bits>
uint64_t ChecksumOfReals(const Cell& cell, Bits infinity) {
  Checksum checksum;
  Bits block[kBlockBytes / sizeof(Bits)];
  for (size_t at = 0; at < cell.bytes; at += kBlockBytes) {
    const size_t bytes = std::min(kBlockBytes, cell.bytes - at);
    const bool whole = bytes == kBlockBytes;
    std::memcpy(block, cell.data + at, bytes);
    if (!whole || AnyNaN(block, infinity)) {
      const Bits nan = infinity + 1;
      for (size_t i = 0; i < bytes / sizeof(Bits); ++i) block[i] = IsNaN(block[i], infinity) ? nan : block[i];
    }
    checksum.Update(block, bytes);
  }
  return checksum.Value();
}

std::string RealText(const void* element, DType dtype, const Compute& compute) {
  double value = 0;
  compute.Cast(&value, DType::kFloat64, element, dtype, 1, Scaling());
  char text[40];
  std::snprintf(text, sizeof(text), "%.9g", value);
  return text;
}

template <class T>
std::string IntegerText(const void* element) {
  T value;
  std::memcpy(&value, element, sizeof(value));
  return std::to_string(value);
}

std::string ValueText(const void* element, DType dtype, const Compute& compute) {
  switch (dtype) {
    case DType::kUInt8:
    case DType::kBool:
      return IntegerText<uint8_t>(element);
    case DType::kInt8:
      return IntegerText<int8_t>(element);
    case DType::kInt16:
      return IntegerText<int16_t>(element);
    case DType::kUInt16:
      return IntegerText<uint16_t>(element);
    case DType::kInt32:
      return IntegerText<int32_t>(element);
    case DType::kUInt32:
      return IntegerText<uint32_t>(element);
    case DType::kInt64:
      return IntegerText<int64_t>(element);
    case DType::kUInt64:
      return IntegerText<uint64_t>(element);
    case DType::kComplex64:
    case DType::kComplex128: {
      const DType part = dtype == DType::kComplex64 ? DType::kFloat32 : DType::kFloat64;
      const auto* imaginary = static_cast<const std::byte*>(element) + SizeOf(part);
      return RealText(element, part, compute) + " and " + RealText(imaginary, part, compute) + "i";
    }
    default:
      return RealText(element, dtype, compute);
  }
}

std::string BitsText(const void* element, size_t bytes) {
  const auto* at = static_cast<const unsigned char*>(element);
  std::string text;
  for (size_t i = bytes; i-- > 0;) {  // the highest byte first
    char two[3];
    std::snprintf(two, sizeof(two), "%02x", at[i]);
    text += two;
  }
  return text;
}

}  // namespace

uint64_t ChecksumOf(const Cell& cell, DType dtype, bool nans_are_equal) {
  if (!nans_are_equal) return ChecksumOf(cell.data, cell.bytes);
  switch (dtype) {
    case DType::kFloat16:
      return ChecksumOfReals<int16_t>(cell, 0x7c00);
    case DType::kBFloat16:
      return ChecksumOfReals<int16_t>(cell, 0x7f80);
    case DType::kFloat32:
      return ChecksumOfReals<int32_t>(cell, 0x7f800000);
    case DType::kFloat64:
      return ChecksumOfReals<int64_t>(cell, 0x7ff0000000000000);
    default:
      return ChecksumOf(cell.data, cell.bytes);
  }
}

std::string ElementText(const void* element, DType dtype, const Compute& compute) {
  return ValueText(element, dtype, compute) + " (bits " + BitsText(element, SizeOf(dtype)) + ")";
}

}  // namespace smddp
