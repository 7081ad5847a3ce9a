// Which elements a thread sums, and how. One function for GPU and host.
//
// As in compute/: in the order of the sources, the half types in float32 and rounded once. `into` may be a source:
// each thread writes only elements that it alone has read before.
#pragma once

#include "cuda/kernels/elements.h"
#include "cuda/kernels/job_tables.h"
#include "cuda/kernels/move.h"

namespace smddp {
namespace {

template <class T>
struct SumShape {
  static constexpr uint32_t kVector = 16 / sizeof(T);
  static constexpr uint32_t kAtOnce =
      2;  // vectors that a thread sums in parallel, or elements where vectors are not possible
  static constexpr int kSources = 4;  // read before the first is added
  static constexpr int64_t kTile = kBlockThreads * kVector * kAtOnce;
};

// A part of a tile: `count` units of `width` elements. The first `head` begin at the tile's start, the others at
// `rest`.
struct Units {
  uint32_t count, head, rest;

  SMDDP_HOST_DEVICE uint32_t At(uint32_t unit, uint32_t width) const {
    return unit < head ? unit * width : rest + (unit - head) * width;
  }
};

// Works on a tile, whose first element is `base`, in units of kWidth elements: what 16 bytes hold, or one.
template <class T>
struct Summer {
  using Shape = SumShape<T>;
  static constexpr uint32_t kNone = ~0u;
  const SumJob& job;
  const int64_t base;

  template <uint32_t kWidth>
  SMDDP_HOST_DEVICE void Write(const Wide<T> (&sum)[kWidth], uint32_t at, Worker& worker) const {
    Vector<T, kWidth> write;
    SMDDP_UNROLL
    for (uint32_t j = 0; j < kWidth; ++j) {
      write.at[j] = Narrowed<T>(sum[j]);
      if (job.non_finite != nullptr) worker.non_finite += IsNonFinite(write.at[j]);
    }
    write.Store(static_cast<T*>(job.into) + base + at);
  }

  // kSources sources from `first` on, as far as there are.
  template <uint32_t kWidth>
  SMDDP_HOST_DEVICE void Add(Wide<T> (&sum)[Shape::kAtOnce][kWidth], int first,
                             const uint32_t (&at)[Shape::kAtOnce]) const {
    Vector<T, kWidth> read[Shape::kSources][Shape::kAtOnce];
    SMDDP_UNROLL
    for (int k = 0; k < Shape::kSources; ++k) {
      if (first + k >= job.count) break;
      const T* const source = static_cast<const T*>(job.sources[first + k]) + base;
      SMDDP_UNROLL
      for (uint32_t g = 0; g < Shape::kAtOnce; ++g) {
        if (at[g] != kNone) read[k][g].Load(source + at[g]);
      }
    }
    SMDDP_UNROLL
    for (int k = 0; k < Shape::kSources; ++k) {
      if (first + k >= job.count) break;
      SMDDP_UNROLL
      for (uint32_t g = 0; g < Shape::kAtOnce; ++g) {
        SMDDP_UNROLL
        for (uint32_t j = 0; j < kWidth; ++j) sum[g][j] = sum[g][j] + WidenedTerm(read[k][g].at[j]);
      }
    }
  }

  // By all threads of a block.
  template <uint32_t kWidth>
  SMDDP_HOST_DEVICE void Run(const Units& units, Worker& worker) const {
    for (uint32_t unit = worker.thread; unit < units.count; unit += worker.threads * Shape::kAtOnce) {
      uint32_t at[Shape::kAtOnce];
      Wide<T> sum[Shape::kAtOnce][kWidth];
      SMDDP_UNROLL
      for (uint32_t g = 0; g < Shape::kAtOnce; ++g) {
        const uint32_t mine = unit + g * worker.threads;
        at[g] = mine < units.count ? units.At(mine, kWidth) : kNone;
        SMDDP_UNROLL
        for (uint32_t j = 0; j < kWidth; ++j) sum[g][j] = -Wide<T>{0};  // -0 + x is x, for x = -0 too
      }
      for (int first = 0; first < job.count; first += Shape::kSources) Add<kWidth>(sum, first, at);
      SMDDP_UNROLL
      for (uint32_t g = 0; g < Shape::kAtOnce; ++g) {
        if (at[g] != kNone) Write<kWidth>(sum[g], at[g], worker);
      }
    }
  }
};

// Do all arrays have the same offset from a multiple of 16 bytes?
SMDDP_HOST_DEVICE inline bool AllAlike(const SumJob& job) {
  const uintptr_t into = reinterpret_cast<uintptr_t>(job.into);
  uintptr_t difference = 0;
  for (int k = 0; k < job.count; ++k) difference |= into ^ reinterpret_cast<uintptr_t>(job.sources[k]);
  return (difference & 15) == 0;
}

template <class T>
SMDDP_HOST_DEVICE inline int64_t TilesOf(const SumJob& job) {
  return (job.elements + SumShape<T>::kTile - 1) / SumShape<T>::kTile;
}

// What thread `thread` of block `block` does. Returns what it has counted.
template <class T>
SMDDP_HOST_DEVICE inline uint32_t SumThread(const SumJob& job, uint32_t block, uint32_t blocks, uint32_t thread,
                                            uint32_t threads) {
  constexpr int64_t kTile = SumShape<T>::kTile;
  constexpr uint32_t kVector = SumShape<T>::kVector;
  Worker worker{thread, threads, 0};
  const bool alike = AllAlike(job);
  for (int64_t tile = block; tile * kTile < job.elements; tile += blocks) {
    const int64_t base = tile * kTile, left = job.elements - base;
    const uint32_t length = static_cast<uint32_t>(left < kTile ? left : kTile);
    const uint32_t to_aligned = ToAligned(static_cast<const T*>(job.into));  // the same for all tiles
    const uint32_t head = alike && to_aligned < length ? to_aligned : length;
    const uint32_t vectors = (length - head) / kVector, tail = length - head - vectors * kVector;
    const Summer<T> summer{job, base};
    summer.template Run<kVector>({vectors, 0, head}, worker);
    summer.template Run<1>({head + tail, head, length - tail}, worker);
  }
  return worker.non_finite;
}

}  // namespace
}  // namespace smddp
