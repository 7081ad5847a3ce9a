// Each table of kernels against plain loops: all reductions of exact values, the casts between floating dtypes, and
// lengths around the vectors' widths. (tests/compute/cpu compares all that a dtype can hold with NumPy.)
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "compute/cpu/kernel_table.h"
#include "core/dtype.h"
#include "native/testing.h"

namespace smddp {

constexpr int64_t kKernelLengths[] = {0, 1, 7, 8, 15, 16, 17, 31, 33, 64, 100, 1027};

template <class T>
void CheckReductionsOf(const KernelTable& table, DType dtype) {
  const ReduceOp ops[] = {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct};
  for (int op = 0; op < kReduceOps; ++op) {
    for (const int64_t length : kKernelLengths) {
      for (const int count : {2, 3, 5}) {
        CAPTURE(NameOf(dtype));
        CAPTURE(NameOf(ops[op]));
        CAPTURE(length);
        std::vector<std::vector<T>> sources;
        std::vector<const void*> pointers;
        for (int source = 0; source < count; ++source) {
          std::vector<T> values;
          for (int64_t i = 0; i < length; ++i) values.push_back(static_cast<T>((i * 3 + source * 5) % 4 + 1));
          sources.push_back(values);
        }
        for (const std::vector<T>& source : sources) pointers.push_back(source.data());
        std::vector<T> expected = length > 0 ? sources[0] : std::vector<T>();
        for (int source = 1; source < count; ++source) {
          for (int64_t i = 0; i < length; ++i) {
            const T a = expected[i], b = sources[source][i];
            expected[i] = static_cast<T>(op == 0 ? a + b : op == 1 ? std::min(a, b) : op == 2 ? std::max(a, b) : a * b);
          }
        }
        std::vector<T> into(length + 1, T{77});
        table.reduce[static_cast<int>(dtype)][op](into.data(), pointers.data(), count, length);
        CHECK(into.back() == T{77});  // nothing behind the end
        into.pop_back();
        CHECK(into == expected);
      }
    }
  }
}

// float32 to `to` and back, of values that `to` holds exactly; and one that it rounds, up and to even.
inline void CheckHalf(const KernelTable& table, DType to, float above_one, uint16_t one) {
  const int half = static_cast<int>(to) - kFirstFloatingType;
  const int single = static_cast<int>(DType::kFloat32) - kFirstFloatingType;
  for (const int64_t length : kKernelLengths) {
    CAPTURE(NameOf(to));
    CAPTURE(length);
    std::vector<float> values, back(length);
    for (int64_t i = 0; i < length; ++i) values.push_back(static_cast<float>(i % 61 - 30) / 4);
    std::vector<uint16_t> narrow(length);
    table.cast[half][single](narrow.data(), values.data(), length, false, 1.0);
    table.cast[single][half](back.data(), narrow.data(), length, false, 1.0);
    CHECK(back == values);
    table.cast[single][half](back.data(), narrow.data(), length, true, 0.5);
    for (float& value : values) value /= 2;
    CHECK(back == values);
  }
  const float ulp = above_one - 1, infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> edges = {1 + ulp / 2, 1 + ulp * 0.75f, 1 + ulp * 1.5f, infinity,
                                    -infinity,   3e38f * 2,       std::nanf(""),  0.0f};
  std::vector<uint16_t> narrow(edges.size());
  std::vector<float> back(edges.size());
  table.cast[half][single](narrow.data(), edges.data(), edges.size(), false, 1.0);
  table.cast[single][half](back.data(), narrow.data(), edges.size(), false, 1.0);
  CHECK(narrow[0] == one);      // a tie goes to even
  CHECK(narrow[1] == one + 1);  // up
  CHECK(narrow[2] == one + 2);  // a tie to even again
  CHECK(back[3] == infinity);
  CHECK(back[4] == -infinity);
  CHECK(back[5] == infinity);
  CHECK(std::isnan(back[6]));
  CHECK(narrow[7] == 0);
}

inline void CheckQuantised(const KernelTable& table) {
  for (const int64_t length : {1, 255, 256, 257, 1000}) {
    CAPTURE(length);
    std::vector<float> values, errors(length, 0), before;
    for (int64_t i = 0; i < length; ++i) values.push_back(static_cast<float>((i * 37) % 201 - 100) / 3);
    before = values;
    std::vector<uint8_t> bytes(2 * length + 64);
    table.quantise(bytes.data(), values.data(), errors.data(), length);
    std::vector<float> sums(length, 1000);
    table.dequantise(sums.data(), bytes.data(), length, true);
    for (int64_t i = 0; i < length; ++i) {
      CHECK(std::abs(values[i] - before[i]) <= 0.51f * (100.0f / 3 / 126 * 1.01f));  // half a scale
      CHECK(values[i] + errors[i] == doctest::Approx(before[i]));
      CHECK(sums[i] == 1000 + values[i]);
    }
    table.dequantise(sums.data(), bytes.data(), length, false);
    CHECK(sums == values);
  }
}

inline void CheckKernels(const KernelTable& table) {
  CheckReductionsOf<uint8_t>(table, DType::kUInt8);
  CheckReductionsOf<int8_t>(table, DType::kInt8);
  CheckReductionsOf<int32_t>(table, DType::kInt32);
  CheckReductionsOf<int64_t>(table, DType::kInt64);
  CheckReductionsOf<float>(table, DType::kFloat32);
  CheckReductionsOf<double>(table, DType::kFloat64);
  CheckReductionsOf<int16_t>(table, DType::kInt16);
  CheckReductionsOf<uint16_t>(table, DType::kUInt16);
  CheckHalf(table, DType::kFloat16, 1 + 1.0f / 1024, 0x3c00);
  CheckHalf(table, DType::kBFloat16, 1 + 1.0f / 128, 0x3f80);
  CheckQuantised(table);
}

}  // namespace smddp
