// One element: how it is moved, converted and scaled. The CPU's code (compute/cpu/elements.inc) is compiled
// for GPU and host alike, so that both give the same bits. Where the GPU has an instruction it is used, with the CPU
// code's treatment of NaN. An operation on NaNs gives an unspecified NaN.
//
// Nothing in here is shared between source files: the names are in an unnamed namespace, for the reason given in the
// included file.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#if defined(__CUDACC__)
#define SMDDP_HOST_DEVICE __host__ __device__
#define SMDDP_UNROLL _Pragma("unroll")
#else
#define SMDDP_HOST_DEVICE
#define SMDDP_UNROLL
#endif

#define SMDDP_ELEMENT_CODE SMDDP_HOST_DEVICE
#include "compute/cpu/elements.inc"

namespace smddp {

namespace {

template <class T>
constexpr bool kIsFloating = kIsHalf<T> || std::is_floating_point<T>::value;

#if defined(__CUDA_ARCH__)

__device__ inline float WidenHalf(Half value) {
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value.bits));
  const uint32_t bits = value.bits;
  const uint32_t nan = (bits & 0x8000u) << 16 | 0x7fc00000u | (bits & 0x03ffu) << 13;
  return (bits & 0x7fffu) > 0x7c00u ? FloatOf(nan) : wide;
}
__device__ inline Half NarrowHalf(float value) {
  uint16_t half;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
  const uint32_t bits = BitsOf(value);
  const uint32_t nan = (bits >> 16 & 0x8000u) | 0x7e00u | (bits >> 13 & 0x03ffu);
  return Half{value != value ? static_cast<uint16_t>(nan) : half};
}

#else

inline float WidenHalf(Half value) { return HalfToFloat(value); }
inline Half NarrowHalf(float value) { return FloatToHalf(value); }

#endif

template <class T>
SMDDP_HOST_DEVICE inline Wide<T> Widened(T value) {
  if constexpr (std::is_same<T, Half>::value) {
    return WidenHalf(value);
  } else {
    return Widen(value);
  }
}

template <class To, class From>
SMDDP_HOST_DEVICE inline To Narrowed(From value) {
  if constexpr (kIsHalf<To> && std::is_same<From, double>::value) {
    return Narrowed<To>(RoundToOdd(value));
  } else if constexpr (std::is_same<To, Half>::value) {
    return NarrowHalf(value);
  } else {
    return Narrow<To>(value);
  }
}

// Compute::Cast of one element.
template <class To, class From>
struct Conversion {
  bool scaled;
  Wide<From> multiplier;

  SMDDP_HOST_DEVICE To operator()(From value) const {
    if constexpr (std::is_same<To, From>::value) {
      if (!scaled) return value;  // keeps all bits, also of a NaN
    }
    if constexpr (kIsFloating<To>) {
      const auto wide = Widened(value);
      return Narrowed<To>(scaled ? wide * multiplier : wide);
    } else {
      return value;
    }
  }
};

// --- 16 bytes at once ---

struct alignas(16) Quad {
  uint32_t words[4];
};

SMDDP_HOST_DEVICE inline bool IsAligned(const void* address, uint32_t bytes) {
  return (reinterpret_cast<uintptr_t>(address) & (bytes - 1)) == 0;
}

#if defined(__CUDA_ARCH__)

// Written by hand: the compiler splits some copies of 16 aligned bytes.
__device__ inline void LoadQuad(Quad* into, const void* from) {
  uint32_t (&w)[4] = into->words;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3]) : "l"(from));
}
__device__ inline void LoadWords(uint32_t (&w)[2], const void* from) {
  asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(w[0]), "=r"(w[1]) : "l"(from));
}
__device__ inline void LoadWords(uint32_t (&w)[1], const void* from) {
  asm volatile("ld.global.u32 %0, [%1];" : "=r"(w[0]) : "l"(from));
}
__device__ inline void StoreQuad(void* into, const Quad& quad) {
  const uint32_t (&w)[4] = quad.words;
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(into), "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]));
}

#else

// The number of 16-byte accesses that this CPU thread has made.
thread_local uint64_t quads_of_thread = 0;

// Aborts where a GPU would report a misaligned access.
inline void CheckQuad(const void* address) {
  if (!IsAligned(address, sizeof(Quad))) __builtin_trap();
  ++quads_of_thread;
}
inline void LoadQuad(Quad* into, const void* from) {
  CheckQuad(from);
  std::memcpy(into, from, sizeof(Quad));
}
template <size_t kWords>
inline void LoadWords(uint32_t (&into)[kWords], const void* from) {
  if (!IsAligned(from, sizeof(into))) __builtin_trap();
  std::memcpy(into, from, sizeof(into));
}
inline void StoreQuad(void* into, const Quad& quad) {
  CheckQuad(into);
  std::memcpy(into, &quad, sizeof(Quad));
}

#endif

// kCount consecutive elements: one, or 4 bytes, 8 bytes, or a multiple of 16 bytes, at an address that is a multiple of
// that and of at most 16. Only multiples of 16 bytes are stored.
template <class T, int kCount>
struct Vector {
  static constexpr uint32_t kBytes = kCount * sizeof(T), kAlignment = kBytes < sizeof(Quad) ? kBytes : sizeof(Quad);
  static constexpr int kQuads = kBytes / sizeof(Quad);
  static_assert(kCount == 1 || kBytes == 4 || kBytes == 8 || kBytes % sizeof(Quad) == 0);
  T at[kCount];

  SMDDP_HOST_DEVICE void Load(const T* from) {
    if constexpr (kCount == 1) {
      at[0] = *from;
    } else if constexpr (kQuads == 0) {
      uint32_t words[kBytes / sizeof(uint32_t)];
      LoadWords(words, from);
      std::memcpy(at, words, sizeof(words));
    } else {
      Quad quads[kQuads];
      SMDDP_UNROLL
      for (int i = 0; i < kQuads; ++i) LoadQuad(quads + i, reinterpret_cast<const char*>(from) + i * sizeof(Quad));
      std::memcpy(at, quads, sizeof(quads));
    }
  }
  SMDDP_HOST_DEVICE void Store(T* into) const {
    if constexpr (kCount == 1) {
      *into = at[0];
    } else {
      Quad quads[kQuads];
      std::memcpy(quads, at, sizeof(quads));
      SMDDP_UNROLL
      for (int i = 0; i < kQuads; ++i) StoreQuad(reinterpret_cast<char*>(into) + i * sizeof(Quad), quads[i]);
    }
  }
};

// Elements from `address` to the next multiple of 16 bytes.
template <class T>
SMDDP_HOST_DEVICE inline uint32_t ToAligned(const T* address) {
  return static_cast<uint32_t>(-reinterpret_cast<uintptr_t>(address) & 15) / sizeof(T);
}

}  // namespace
}  // namespace smddp
