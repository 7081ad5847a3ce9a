// Compute over the kernels for the processor that this process runs on.
#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include <algorithm>
#include <complex>
#include <cstddef>
#include <cstring>

#include "compute/compute.h"
#include "compute/cpu/kernel_table.h"
#include "core/check.h"

namespace smddp {
namespace {

// The kernel tables are indexed by these numbers.
static_assert(static_cast<int>(DType::kUInt8) == 0 && static_cast<int>(DType::kInt64) == kFirstFloatingType - 1);
static_assert(static_cast<int>(DType::kFloat16) == kFirstFloatingType);
static_assert(static_cast<int>(DType::kFloat64) == kFirstFloatingType + kFloatingTypes - 1);
static_assert(static_cast<int>(DType::kUInt16) == kReducibleTypes - 1);
static_assert(static_cast<int>(DType::kInt16) == static_cast<int>(DType::kUInt16) - 1);

int FloatingIndex(DType dtype) { return static_cast<int>(dtype) - kFirstFloatingType; }
// -1: not an integer type with arithmetic.
int IntegerIndex(DType dtype) {
  constexpr int kIndices[kReducibleTypes] = {0, 1, 2, 3, -1, -1, -1, -1, -1, 4, 5};  // by DType
  return static_cast<int>(dtype) < kReducibleTypes ? kIndices[static_cast<int>(dtype)] : -1;
}

// -1: not in the tables.
int OpIndex(ReduceOp op) {
  constexpr int kIndices[] = {-1, 0, -1, 1, 2, 3};
  return op <= ReduceOp::kProduct ? kIndices[static_cast<int>(op)] : -1;
}

void Copy(void* into, const void* from, int64_t elements, DType dtype) {
  if (into != from) std::memcpy(into, from, static_cast<size_t>(elements) * SizeOf(dtype));
}

#if defined(__SSE2__)
// Stores past the caches; other threads see it in order after EndStream.
void Stream(std::byte* into, const std::byte* from, size_t bytes) {
  const size_t head = std::min<size_t>(bytes, -reinterpret_cast<uintptr_t>(into) % sizeof(__m128i));
  std::memcpy(into, from, head);
  size_t at = head;
  for (; at + sizeof(__m128i) <= bytes; at += sizeof(__m128i)) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(into + at),
                     _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at)));
  }
  std::memcpy(into + at, from + at, bytes - at);
}
void EndStream() { _mm_sfence(); }
#else
void Stream(std::byte* into, const std::byte* from, size_t bytes) { std::memcpy(into, from, bytes); }
void EndStream() {}
#endif

// A cast in place between sizes: each block of the source is moved out of the way before its results are written. A
// growing cast runs backwards, so that results only cover elements already read.
void CastInPlace(CastKernel kernel, void* data, size_t to_size, size_t from_size, int64_t elements, bool scaled,
                 double multiplier) {
  constexpr int64_t kBlock = 1024;
  alignas(64) char block[kBlock * sizeof(double)];
  char* bytes = static_cast<char*>(data);
  const int64_t blocks = (elements + kBlock - 1) / kBlock;
  for (int64_t i = 0; i < blocks; ++i) {
    const int64_t first = (to_size > from_size ? blocks - 1 - i : i) * kBlock;
    const int64_t length = std::min(kBlock, elements - first);
    std::memcpy(block, bytes + first * from_size, length * from_size);
    kernel(bytes + first * to_size, block, length, scaled, multiplier);
  }
}

// Checks the contract of Compute, handles the cases that are plain copies, and picks the kernel of a table, which lives
// as long as the object.
class TableCompute : public Compute {
 public:
  explicit TableCompute(const KernelTable& table) : table_(table) {}

  const char* name() const override { return table_.name; }

  void Cast(void* into, DType to, const void* from, DType from_dtype, int64_t elements,
            const Scaling& scaling) const override {
    SMDDP_CHECK_OP(scaling.divisor, >=, 1);
    if (elements <= 0) return;
    if (to == from_dtype && (scaling.identity() || to == DType::kBool)) return Copy(into, from, elements, to);
    if (to == from_dtype && IntegerIndex(to) >= 0) {
      return table_.scale[IntegerIndex(to)](into, from, elements, scaling.factor, scaling.divisor);
    }
    CastFloating(into, to, from, from_dtype, elements, scaling);
  }

  void CastUncached(void* into, DType to, const void* from, DType from_dtype, int64_t elements,
                    const Scaling& scaling) const override {
    constexpr int64_t kBlock = 512;
    alignas(64) std::byte block[kBlock * sizeof(std::complex<double>)];
    const size_t to_size = SizeOf(to), from_size = SizeOf(from_dtype);
    for (int64_t first = 0; first < elements; first += kBlock) {
      const int64_t length = std::min(kBlock, elements - first);
      Cast(block, to, static_cast<const std::byte*>(from) + first * from_size, from_dtype, length, scaling);
      Stream(static_cast<std::byte*>(into) + first * to_size, block, length * to_size);
    }
    EndStream();
  }

  void Reduce(void* into, const void* const* sources, int count, int64_t elements, DType dtype,
              ReduceOp op) const override {
    SMDDP_CHECK_OP(count, >=, 1);
    SMDDP_CHECK(IsReducible(dtype));
    const int column = OpIndex(op);
    SMDDP_CHECK_OP(column, >=, 0);
    if (elements <= 0) return;
    if (count == 1) return Copy(into, sources[0], elements, dtype);
    table_.reduce[static_cast<int>(dtype)][column](into, sources, count, elements);
  }

  void Quantise(void* into, float* values, float* errors, int64_t elements) const override {
    table_.quantise(into, values, errors, elements);
  }

  void Dequantise(float* into, const void* from, int64_t elements, bool add) const override {
    table_.dequantise(into, from, elements, add);
  }

 private:
  void CastFloating(void* into, DType to, const void* from, DType from_dtype, int64_t elements,
                    const Scaling& scaling) const {
    SMDDP_CHECK(IsFloating(to) && IsFloating(from_dtype));
    const CastKernel kernel = table_.cast[FloatingIndex(to)][FloatingIndex(from_dtype)];
    const bool scaled = !scaling.identity();
    const double multiplier = scaling.factor / static_cast<double>(scaling.divisor);
    const size_t to_size = SizeOf(to), from_size = SizeOf(from_dtype);
    if (into == from && to_size != from_size) {
      return CastInPlace(kernel, into, to_size, from_size, elements, scaled, multiplier);
    }
    kernel(into, from, elements, scaled, multiplier);
  }

  const KernelTable& table_;
};

// --- The choice ---

enum Isa { kGeneric = 0, kAvx2 = 1, kAvx512 = 2 };  // each includes the ones before it

#if defined(__x86_64__)

// Clang before version 16 does not accept the name "f16c" in __builtin_cpu_supports.
bool HasF16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

// __builtin_cpu_supports also asks whether the operating system saves the wide registers.
Isa BestIsa() {
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !HasF16c()) return kGeneric;
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  return avx512 ? kAvx512 : kAvx2;
}

const KernelTable& TableFor(Isa isa) {
  if (isa == kAvx512) return Avx512Kernels();
  return isa == kAvx2 ? Avx2Kernels() : GenericKernels();
}

#else

Isa BestIsa() { return kGeneric; }
const KernelTable& TableFor(Isa) { return GenericKernels(); }

#endif

// "auto" and unknown names select the best.
Isa Requested(const char* name) {
  if (std::strcmp(name, "generic") == 0) return kGeneric;
  return std::strcmp(name, "avx2") == 0 ? kAvx2 : kAvx512;
}

template <Isa isa>
const Compute& ComputeFor() {
  static const TableCompute compute(TableFor(isa));
  return compute;
}

}  // namespace

const Compute& CpuCompute(const char* requested) {
  const Isa best = BestIsa(), wanted = Requested(requested), isa = wanted < best ? wanted : best;
  return isa == kAvx512 ? ComputeFor<kAvx512>() : isa == kAvx2 ? ComputeFor<kAvx2>() : ComputeFor<kGeneric>();
}

size_t QuantisedBytes(int64_t elements) {
  return static_cast<size_t>(elements + (elements + kQuantisedBlock - 1) / kQuantisedBlock * 2);
}

}  // namespace smddp
