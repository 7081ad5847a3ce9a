// The kernels with AVX-512: compiled with -mavx512f -mavx512bw -mavx512vl -mavx512dq, on x86-64 only.
#include <immintrin.h>

#include "compute/cpu/elements.inc"
#include "compute/cpu/kernel_table.h"

namespace smddp {
namespace {

constexpr __mmask16 kAllLanes = 0xffff;  // GCC 12 reports the forms without a mask as a use of uninitialised memory

struct Lanes {
  static constexpr int kCount = 16;

  static __m512 Load(const Half* from) { return _mm512_maskz_cvtph_ps(kAllLanes, LoadBits(from)); }
  static __m512 Load(const BFloat16* from) {
    const __m512i low = _mm512_maskz_cvtepu16_epi32(kAllLanes, LoadBits(from));
    return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(kAllLanes, low, 16));
  }
  static __m512 Load(const float* from) { return _mm512_loadu_ps(from); }

  static void Store(Half* into, __m512 value) {
    StoreBits(into, _mm512_maskz_cvtps_ph(kAllLanes, value, _MM_FROUND_TO_NEAREST_INT));
  }
  static void Store(BFloat16* into, __m512 value) {  // as FloatToBFloat16
    const __m512i bits = _mm512_castps_si512(value);
    const __m512i high = _mm512_maskz_srli_epi32(kAllLanes, bits, 16);
    const __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
    const __m512i bias = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
    const __m512i rounded = _mm512_maskz_srli_epi32(kAllLanes, _mm512_add_epi32(bits, bias), 16);
    const __mmask16 is_nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
    const __m512i result = _mm512_mask_or_epi32(rounded, is_nan, high, _mm512_set1_epi32(0x0040));
    StoreBits(into, _mm512_maskz_cvtepi32_epi16(kAllLanes, result));
  }
  static void Store(float* into, __m512 value) { _mm512_storeu_ps(into, value); }

 private:
  static __m256i LoadBits(const void* from) { return _mm256_loadu_si256(static_cast<const __m256i*>(from)); }
  static void StoreBits(void* into, __m256i bits) { _mm256_storeu_si256(static_cast<__m256i*>(into), bits); }
};

}  // namespace
}  // namespace smddp

#include "compute/cpu/kernels.inc"

namespace smddp {

const KernelTable& Avx512Kernels() {
  static constexpr KernelTable kTable = MakeTable("avx512");
  return kTable;
}

}  // namespace smddp
