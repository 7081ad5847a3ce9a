// Which elements a thread sums, and how. One function for GPU and host.
//
// As in compute/: in the order of the sources, the half types in float32 and rounded once. `into` may be a source:
// a thread writes what it alone has read before.
#pragma once

#include "cuda/kernels/elements.h"
#include "cuda/kernels/job_tables.h"
#include "cuda/kernels/move.h"

namespace smddp {
namespace {

template <class T>
struct SumShape {
  static constexpr uint32_t kVector = 16 / sizeof(T);
  static constexpr uint32_t kAtOnce = 2;  // vectors, or elements where vectors are not possible
  static constexpr int kSources = 4;      // read before the first is added
  static constexpr int64_t kTile = kBlockThreads * kVector * kAtOnce;
};

// Goes by kWidth elements: as many as 16 bytes hold, or one.
template <class T>
struct Summer {
  using Shape = SumShape<T>;
  const SumJob& job;

  template <uint32_t kWidth>
  SMDDP_HOST_DEVICE void Write(const Wide<T> (&sum)[kWidth], int64_t at, Worker& worker) const {
    Vector<T, kWidth> write;
    SMDDP_UNROLL
    for (uint32_t j = 0; j < kWidth; ++j) {
      write.at[j] = Narrowed<T>(sum[j]);
      if (job.non_finite != nullptr) worker.non_finite += IsNonFinite(write.at[j]);
    }
    write.Store(static_cast<T*>(job.into) + at);
  }

  // kAtOnce groups of kWidth elements, `stride` apart; those from `end` on do not exist.
  template <uint32_t kWidth>
  SMDDP_HOST_DEVICE void Groups(int64_t at, int64_t stride, int64_t end, Worker& worker) const {
    Wide<T> sum[Shape::kAtOnce][kWidth];
    SMDDP_UNROLL
    for (uint32_t g = 0; g < Shape::kAtOnce; ++g) {
      SMDDP_UNROLL
      for (uint32_t j = 0; j < kWidth; ++j) sum[g][j] = -Wide<T>{0};  // -0 + x is x, for x = -0 too
    }
    for (int first = 0; first < job.count; first += Shape::kSources) Add<kWidth>(sum, first, at, stride, end);
    SMDDP_UNROLL
    for (uint32_t g = 0; g < Shape::kAtOnce; ++g) {
      if (at + g * stride < end) Write<kWidth>(sum[g], at + g * stride, worker);
    }
  }

  // kSources sources from `first` on, as far as there are.
  template <uint32_t kWidth>
  SMDDP_HOST_DEVICE void Add(Wide<T> (&sum)[Shape::kAtOnce][kWidth], int first, int64_t at, int64_t stride,
                             int64_t end) const {
    Vector<T, kWidth> read[Shape::kSources][Shape::kAtOnce];
    SMDDP_UNROLL
    for (int k = 0; k < Shape::kSources; ++k) {
      if (first + k >= job.count) break;
      const T* const source = static_cast<const T*>(job.sources[first + k]) + at;
      SMDDP_UNROLL
      for (uint32_t g = 0; g < Shape::kAtOnce; ++g) {
        if (at + g * stride < end) read[k][g].Load(source + g * stride);
      }
    }
    SMDDP_UNROLL
    for (int k = 0; k < Shape::kSources; ++k) {
      if (first + k >= job.count) break;
      SMDDP_UNROLL
      for (uint32_t g = 0; g < Shape::kAtOnce; ++g) {
        SMDDP_UNROLL
        for (uint32_t j = 0; j < kWidth; ++j) sum[g][j] = sum[g][j] + Widened(read[k][g].at[j]);
      }
    }
  }

  // Elements [begin, end), by all threads of a block.
  template <uint32_t kWidth>
  SMDDP_HOST_DEVICE void Run(int64_t begin, int64_t end, Worker& worker) const {
    const int64_t stride = static_cast<int64_t>(worker.threads) * kWidth;
    for (int64_t at = begin + static_cast<int64_t>(worker.thread) * kWidth; at < end; at += stride * Shape::kAtOnce) {
      Groups<kWidth>(at, stride, end, worker);
    }
  }
};

// Are all arrays at the same distance from a multiple of 16 bytes?
SMDDP_HOST_DEVICE inline bool AllAlike(const SumJob& job) {
  const uintptr_t into = reinterpret_cast<uintptr_t>(job.into);
  uintptr_t difference = 0;
  for (int k = 0; k < job.count; ++k) difference |= into ^ reinterpret_cast<uintptr_t>(job.sources[k]);
  return (difference & 15) == 0;
}

template <class T>
SMDDP_HOST_DEVICE inline int64_t TilesOf(const SumJob& job) {
  return job.elements / SumShape<T>::kTile + 1;
}

// What thread `thread` of block `block` does. Returns what it has counted.
template <class T>
SMDDP_HOST_DEVICE inline uint32_t SumThread(const SumJob& job, uint32_t block, uint32_t blocks, uint32_t thread,
                                            uint32_t threads) {
  constexpr int64_t kTile = SumShape<T>::kTile;
  constexpr uint32_t kVector = SumShape<T>::kVector;
  const Summer<T> summer{job};
  Worker worker{thread, threads, 0};
  const bool alike = AllAlike(job);
  const int64_t skew = alike ? ToAligned(static_cast<const T*>(job.into)) : 0;  // before the first whole tile
  for (int64_t tile = block; tile * kTile < job.elements; tile += blocks) {
    const int64_t begin = tile == 0 ? 0 : tile * kTile + skew, next = (tile + 1) * kTile + skew;
    const int64_t end = next < job.elements ? next : job.elements;
    if (!alike) {
      summer.template Run<1>(begin, end, worker);
      continue;
    }
    const int64_t head = tile == 0 ? (skew < end ? skew : end) : begin;
    const int64_t body = head + (end - head) / kVector * kVector;
    summer.template Run<1>(begin, head, worker);
    summer.template Run<kVector>(head, body, worker);
    summer.template Run<1>(body, end, worker);
  }
  return worker.non_finite;
}

}  // namespace
}  // namespace smddp
