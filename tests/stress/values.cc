#include "stress/values.h"

#include <cmath>
#include <cstring>

#include "compute/compute.h"

namespace stress {

using smddp::DType;
using smddp::ReduceOp;

namespace {

template <class T>
double As(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return static_cast<double>(value);
}

template <class T>
void Put(std::byte* at, double value) {
  const T narrow = static_cast<T>(value);
  std::memcpy(at, &narrow, sizeof(T));
}

}  // namespace

double Read(DType dtype, const Bytes& data, int64_t i) {
  const std::byte* at = data.data() + static_cast<size_t>(i) * SizeOf(dtype);
  switch (dtype) {
    case DType::kUInt8:
    case DType::kBool:
      return As<uint8_t>(at);
    case DType::kInt8:
      return As<int8_t>(at);
    case DType::kInt16:
      return As<int16_t>(at);
    case DType::kUInt16:
      return As<uint16_t>(at);
    case DType::kInt32:
      return As<int32_t>(at);
    case DType::kInt64:
      return As<int64_t>(at);
    default: {
      double value = 0;
      smddp::CpuCompute().Cast(&value, DType::kFloat64, at, dtype, 1, smddp::Scaling());
      return value;
    }
  }
}

void Write(DType dtype, Bytes* data, int64_t i, double value) {
  std::byte* at = data->data() + static_cast<size_t>(i) * SizeOf(dtype);
  switch (dtype) {
    case DType::kUInt8:
    case DType::kBool:
      return Put<uint8_t>(at, dtype == DType::kBool ? value != 0 : value);
    case DType::kInt8:
      return Put<int8_t>(at, value);
    case DType::kInt16:
      return Put<int16_t>(at, value);
    case DType::kUInt16:
      return Put<uint16_t>(at, value);
    case DType::kInt32:
      return Put<int32_t>(at, value);
    case DType::kInt64:
      return Put<int64_t>(at, value);
    default:
      smddp::CpuCompute().Cast(at, dtype, &value, DType::kFloat64, 1, smddp::Scaling());
  }
}

double Brought(ReduceOp op, int rank, int salt, int64_t i) {
  if (op == ReduceOp::kProduct) return (rank + salt + i) % 7 == 0 ? 2 : 1;
  if (op == ReduceOp::kAdasum) return static_cast<double>((salt + i) % 5);  // equal everywhere: the result is the same
  return static_cast<double>((rank * 7 + salt * 3 + i * 5) % 6);
}

double Reduced(ReduceOp op, DType dtype, const std::vector<int>& ranks, int size, int salt, int64_t i) {
  const bool boolean = dtype == DType::kBool;
  double result = op == ReduceOp::kProduct ? 1 : op == ReduceOp::kMin ? 1e9 : 0;
  for (const int rank : ranks) {
    double value = Brought(op, rank, salt, i);
    if (boolean) value = value != 0;
    switch (op) {
      case ReduceOp::kSum:
      case ReduceOp::kAverage:
        result += value;
        break;
      case ReduceOp::kAdasum:
        result = value;
        break;
      case ReduceOp::kMin:
        result = std::min(result, value);
        break;
      case ReduceOp::kMax:
        result = std::max(result, value);
        break;
      case ReduceOp::kProduct:
        result *= value;
        break;
    }
  }
  if (boolean) return result != 0;
  if (op != ReduceOp::kAverage) return result;
  return IsFloating(dtype) ? result / size : std::trunc(result / size);
}

bool Same(DType dtype, double expected, double came) {
  if (!IsFloating(dtype)) return expected == came;
  return std::abs(expected - came) <= 0.01 * std::abs(expected);
}

std::byte Pattern(int rank, int salt, size_t i) {
  return static_cast<std::byte>((rank * 31 + salt * 17 + i * 7 + (i >> 8) * 3) & 0xFF);
}

}  // namespace stress
