#include "runtime/verify_sums.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/scalings.h"

namespace smddp {
namespace {

constexpr int64_t kBlock = 512;  // elements that are widened at a time
constexpr int kLanes = 4;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

double Neutral(Fold fold) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return fold == Fold::kMin ? kInfinity : fold == Fold::kMax ? -kInfinity : 0;
}

double Folded(Fold fold, double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return kNaN;
  return fold == Fold::kMin ? std::min(a, b) : std::max(a, b);
}

struct Lanes {
  double values[kLanes] = {}, magnitudes[kLanes] = {};
};

// Lanes of my own while it runs: those of the caller could be anywhere, to the compiler.
void AddReals(const double* values, int64_t count, Lanes* sums) {
  Lanes mine = *sums;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      mine.values[lane] += values[i + lane];
      mine.magnitudes[lane] += std::fabs(values[i + lane]);
    }
  }
  for (; i < count; ++i) {
    mine.values[0] += values[i];
    mine.magnitudes[0] += std::fabs(values[i]);
  }
  *sums = mine;
}

PartSum OfReals(const void* data, DType dtype, int64_t elements, Fold fold, const Compute& compute) {
  double block[kBlock];
  Lanes lanes;
  PartSum sum;
  sum.value = Neutral(fold);
  for (int64_t at = 0; at < elements; at += kBlock) {
    const int64_t count = std::min(kBlock, elements - at);
    const auto* from = static_cast<const std::byte*>(data) + static_cast<size_t>(at) * SizeOf(dtype);
    compute.Cast(block, DType::kFloat64, from, dtype, count, Scaling());
    if (fold == Fold::kSum) {
      AddReals(block, count, &lanes);
    } else {
      for (int64_t i = 0; i < count; ++i) sum.value = Folded(fold, sum.value, block[i]);
    }
  }
  if (fold != Fold::kSum) return sum;
  for (int lane = 0; lane < kLanes; ++lane) {
    sum.value += lanes.values[lane];
    sum.magnitude += lanes.magnitudes[lane];
  }
  return sum;
}

template <class T>
PartSum OfIntegers(const void* data, int64_t elements, Fold fold) {
  const T* values = static_cast<const T*>(data);
  PartSum sum;
  sum.value = Neutral(fold);
  for (int64_t i = 0; i < elements; ++i) {
    const double value = static_cast<double>(values[i]);
    sum.value = fold == Fold::kSum ? sum.value + value : Folded(fold, sum.value, value);
    sum.magnitude += std::fabs(value);
    sum.exact += static_cast<uint64_t>(values[i]);
  }
  return sum;
}

// Machine epsilon, the smallest step near 0 (processors may flush what is smaller than the least normal number), and
// the largest number.
struct Precision {
  double epsilon, least, largest;
};

Precision PrecisionOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return {std::ldexp(1, -10), std::ldexp(1, -24), 65504};
    case DType::kBFloat16:
      return {std::ldexp(1, -7), std::ldexp(1, -126), 3.3e38};
    case DType::kFloat32:
      return {std::ldexp(1, -23), std::ldexp(1, -126), 3.4e38};
    default:
      return {std::ldexp(1, -52), std::ldexp(1, -1022), 1.79e308};
  }
}

double LargestOf(DType dtype) {
  const int bits = static_cast<int>(SizeOf(dtype)) * 8;
  const bool is_unsigned = dtype == DType::kUInt8 || dtype == DType::kUInt16;
  return std::ldexp(1, is_unsigned ? bits : bits - 1) - 1;
}

PartSum Total(Fold fold, const std::vector<PartSum>& inputs) {
  PartSum total;
  total.value = Neutral(fold);
  for (const PartSum& input : inputs) {
    total.value = fold == Fold::kSum ? total.value + input.value : Folded(fold, total.value, input.value);
    total.magnitude += input.magnitude;
    total.exact += input.exact;
  }
  return total;
}

SumVerdict CompareIntegers(const SumRule& rule, const PartSum& total, const PartSum& output, int64_t elements) {
  SumVerdict verdict;
  verdict.expected = total.value / static_cast<double>(rule.after.divisor);
  if (rule.fold != Fold::kSum) {
    verdict.right = output.value == total.value;
  } else if (rule.after.divisor == 1) {
    const int bits = static_cast<int>(SizeOf(rule.dtype)) * 8;
    verdict.right = ((total.exact - output.exact) << (64 - bits)) == 0;
  } else if (total.magnitude <= LargestOf(rule.dtype)) {  // else sums may have wrapped before they were divided
    verdict.tolerance = static_cast<double>(elements) + total.magnitude * 1e-12;  // each is cut towards 0
    verdict.right = std::fabs(output.value - verdict.expected) <= verdict.tolerance;
  }
  return verdict;
}

SumVerdict CompareReals(const SumRule& rule, const PartSum& total, const PartSum& output, int64_t elements, int ranks) {
  const double after = rule.after.factor / static_cast<double>(rule.after.divisor);
  SumVerdict verdict;
  verdict.expected = total.value * rule.before.factor * after;
  const Precision wire = PrecisionOf(rule.wire), own = PrecisionOf(rule.dtype);
  if (!std::isfinite(total.value) || !std::isfinite(total.magnitude)) {
    // Infinities and NaNs do not vanish; but my own sum of float64 may have overflowed.
    verdict.right = rule.dtype == DType::kFloat64 || !std::isfinite(output.value);
    return verdict;
  }
  const double brought = rule.fold == Fold::kSum ? total.magnitude : std::fabs(total.value);
  if (!std::isfinite(output.value)) {
    const double most = std::max({1.0, std::fabs(rule.before.factor), std::fabs(rule.before.factor * after)});
    verdict.right = brought * most > std::min(wire.largest, own.largest) / 2;  // it may have overflowed in the dtype
    return verdict;
  }
  // Every addition and every rounding to the wire's dtype may be wrong by an epsilon of what was brought.
  const double count = static_cast<double>(elements);
  const double relative = (ranks + 6) * wire.epsilon + 4 * own.epsilon + (count + ranks) * std::ldexp(1, -52);
  verdict.tolerance = brought * std::fabs(rule.before.factor * after) * relative +
                      count * (ranks * wire.least * std::max(1.0, std::fabs(after)) + own.least);
  verdict.right = std::fabs(output.value - verdict.expected) <= verdict.tolerance;
  return verdict;
}

}  // namespace

PartSum SumPart(const void* data, DType dtype, int64_t elements, Fold fold, const Compute& compute) {
  switch (dtype) {
    case DType::kUInt8:
    case DType::kBool:
      return OfIntegers<uint8_t>(data, elements, fold);
    case DType::kInt8:
      return OfIntegers<int8_t>(data, elements, fold);
    case DType::kInt16:
      return OfIntegers<int16_t>(data, elements, fold);
    case DType::kUInt16:
      return OfIntegers<uint16_t>(data, elements, fold);
    case DType::kInt32:
      return OfIntegers<int32_t>(data, elements, fold);
    case DType::kInt64:
      return OfIntegers<int64_t>(data, elements, fold);
    default:
      return IsFloating(dtype) ? OfReals(data, dtype, elements, fold, compute) : PartSum();
  }
}

SumRule SumRuleFor(DType dtype, DType wire, ReduceOp op, double prescale, double postscale, int ranks) {
  const Scalings scalings = ScalingsFor(op, prescale, postscale, ranks);
  SumRule rule = {dtype, wire, Fold::kNone, scalings.before, scalings.after};
  if (!IsReducible(dtype)) return rule;
  const bool least = scalings.op == ReduceOp::kMin, largest = scalings.op == ReduceOp::kMax;
  if (dtype == DType::kBool) {  // scalings are ignored
    rule.before = rule.after = Scaling();
    const bool either = scalings.op == ReduceOp::kSum || largest;
    rule.fold = either ? Fold::kMax : least || scalings.op == ReduceOp::kProduct ? Fold::kMin : Fold::kNone;
    return rule;
  }
  rule.fold = scalings.op == ReduceOp::kSum ? Fold::kSum : least ? Fold::kMin : largest ? Fold::kMax : Fold::kNone;
  const bool scaled = prescale != 1.0 || postscale != 1.0;
  const bool keeps_order = prescale > 0 && postscale > 0;
  if (scaled && !IsFloating(dtype)) rule.fold = Fold::kNone;
  if ((least || largest) && !keeps_order) rule.fold = Fold::kNone;
  return rule;
}

SumVerdict CompareSums(const SumRule& rule, const std::vector<PartSum>& inputs, const PartSum& output,
                       int64_t elements) {
  if (rule.fold == Fold::kNone || elements == 0) return SumVerdict();
  const PartSum total = Total(rule.fold, inputs);
  if (!IsFloating(rule.dtype)) return CompareIntegers(rule, total, output, elements);
  return CompareReals(rule, total, output, elements, static_cast<int>(inputs.size()));
}

}  // namespace smddp
