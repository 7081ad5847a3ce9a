// The instructions that the kernels use by name (tests/fake_cuda/device_code.py), as the PTX manual defines them.
// Included in elements.h behind the CPU's own conversions.
#pragma once

#include <cstdint>
#include <cstring>

namespace fake_ptx {

// NaN becomes the canonical one, whatever it was.
inline float CvtF32F16(uint16_t bits) {
  if ((bits & 0x7fff) > 0x7c00) return smddp::FloatOf(0x7fffffff);
  return smddp::HalfToFloat(smddp::Half{bits});
}
inline uint16_t CvtRnF16F32(float value) { return value != value ? 0x7fff : smddp::FloatToHalf(value).bits; }

// `kWords` words at an address that is a multiple of their bytes.
template <int kWords>
struct Words {
  uint32_t at[kWords];
};
inline void CheckAligned(const void* address, uintptr_t bytes) {
  if (reinterpret_cast<uintptr_t>(address) % bytes != 0) __builtin_trap();
}
template <int kWords>
Words<kWords> LoadGlobal(const void* from) {
  CheckAligned(from, sizeof(Words<kWords>));
  Words<kWords> words;
  std::memcpy(&words, from, sizeof words);
  return words;
}
template <int kWords>
void StoreGlobal(void* into, const Words<kWords>& words) {
  CheckAligned(into, sizeof words);
  std::memcpy(into, &words, sizeof words);
}

}  // namespace fake_ptx
