// The kernels with AVX2 and F16C: compiled with -mavx2 -mf16c, on x86-64 only.
#include <immintrin.h>

#include "compute/cpu/elements.inc"
#include "compute/cpu/kernel_table.h"

namespace smddp {
namespace {

struct Lanes {
  static constexpr int kCount = 8;

  static __m256 Load(const Half* from) { return _mm256_cvtph_ps(LoadBits(from)); }
  static __m256 Load(const BFloat16* from) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(LoadBits(from)), 16));
  }
  static __m256 Load(const float* from) { return _mm256_loadu_ps(from); }

  static void Store(Half* into, __m256 value) { StoreBits(into, _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT)); }
  static void Store(BFloat16* into, __m256 value) {  // as FloatToBFloat16
    const __m256i bits = _mm256_castps_si256(value);
    const __m256i high = _mm256_srli_epi32(bits, 16);
    const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    const __m256i bias = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
    const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, bias), 16);
    const __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x0040));
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
    const __m256i result = _mm256_blendv_epi8(rounded, quiet, is_nan);
    StoreBits(into, _mm_packus_epi32(_mm256_castsi256_si128(result), _mm256_extracti128_si256(result, 1)));
  }
  static void Store(float* into, __m256 value) { _mm256_storeu_ps(into, value); }

 private:
  static __m128i LoadBits(const void* from) { return _mm_loadu_si128(static_cast<const __m128i*>(from)); }
  static void StoreBits(void* into, __m128i bits) { _mm_storeu_si128(static_cast<__m128i*>(into), bits); }
};

}  // namespace
}  // namespace smddp

#include "compute/cpu/kernels.inc"

namespace smddp {

const KernelTable& Avx2Kernels() {
  static constexpr KernelTable kTable = MakeTable("avx2");
  return kTable;
}

}  // namespace smddp
