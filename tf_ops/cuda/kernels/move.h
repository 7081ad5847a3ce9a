// Which elements a thread moves, and how: pack, unpack, cast, scale, copy. One function for GPU and host.
//
// The packed array is divided into tiles; block b processes tiles b, b + blocks, ... A tile is moved piece by piece, 16
// bytes written at a time where both sides allow it: a large piece by all threads of the block, each small one by one
// warp, several at once. In a tile with very many pieces every thread looks up the piece of each element.
#pragma once

#include "cuda/kernels/elements.h"
#include "cuda/kernels/job_tables.h"

namespace smddp {
namespace {

constexpr uint32_t kWarpThreads = 32;
constexpr uint32_t kSmallPiece = 2048;  // elements, below which a warp moves a piece
constexpr uint32_t kCrumbs = 128;       // pieces in a tile from which on they are looked up one by one

template <class To, class From>
struct MoveShape {
  static constexpr uint32_t kWide = sizeof(To) < sizeof(From) ? sizeof(From) : sizeof(To);
  // Elements that a thread moves at once: 16 bytes written. With more, a warp's stores would leave gaps.
  static constexpr uint32_t kVector = 16 / sizeof(To);
  static constexpr uint32_t kRead = kVector * sizeof(From);  // bytes, to read them
  // Vectors read before the first is written: 64 bytes of them, at most 8.
  static constexpr uint32_t kAtOnce = kRead >= 64 ? 1 : kRead <= 8 ? 8 : 64 / kRead;
  static constexpr uint32_t kSingles = kWide < 8 ? 8 : 4;  // the same, element by element
  static constexpr uint32_t kTile = kBlockThreads * kVector * kAtOnce;
  static_assert(kTile >= kSmallestTile);
};

// A thread of a block, or of a warp.
struct Worker {
  uint32_t thread, threads;
};

template <class To, class From>
struct Mover {
  using Shape = MoveShape<To, From>;
  Conversion<To, From> convert;

  // Several elements of a thread at once: all are read before the first is written. Elements past the end are
  // converted too (not stored), so that the GPU need not branch.
  SMDDP_HOST_DEVICE void Singles(To* to, const From* from, uint32_t n, const Worker& worker) const {
    for (uint32_t i = worker.thread; i < n; i += worker.threads * Shape::kSingles) {
      const From* const source = from + i;
      To* const target = to + i;
      From read[Shape::kSingles] = {};
      SMDDP_UNROLL
      for (uint32_t k = 0; k < Shape::kSingles; ++k) {
        if (i + k * worker.threads < n) read[k] = source[k * worker.threads];
      }
      SMDDP_UNROLL
      for (uint32_t k = 0; k < Shape::kSingles; ++k) {
        const To value = convert(read[k]);
        if (i + k * worker.threads < n) target[k * worker.threads] = value;
      }
    }
  }

  SMDDP_HOST_DEVICE void StoreVector(To* to, const Vector<From, Shape::kVector>& read) const {
    Vector<To, Shape::kVector> write;
    SMDDP_UNROLL
    for (uint32_t j = 0; j < Shape::kVector; ++j) write.at[j] = convert(read.at[j]);
    write.Store(to);
  }

  // `n` vectors.
  SMDDP_HOST_DEVICE void Vectors(To* to, const From* from, uint32_t n, const Worker& worker) const {
    const uint32_t stride = worker.threads * Shape::kVector;
    for (uint32_t i = worker.thread; i < n; i += worker.threads * Shape::kAtOnce) {
      const From* const source = from + i * Shape::kVector;
      To* const target = to + i * Shape::kVector;
      Vector<From, Shape::kVector> read[Shape::kAtOnce];
      SMDDP_UNROLL
      for (uint32_t k = 0; k < Shape::kAtOnce; ++k) {
        if (i + k * worker.threads < n) read[k].Load(source + k * stride);
      }
      SMDDP_UNROLL
      for (uint32_t k = 0; k < Shape::kAtOnce; ++k) {
        if (i + k * worker.threads < n) StoreVector(target + k * stride, read[k]);
      }
    }
  }

  // All threads of the worker together, each element by one of them.
  SMDDP_HOST_DEVICE void Run(To* to, const From* from, uint32_t n, const Worker& worker) const {
    const uint32_t head = ToAligned(to);
    if (n < head + Shape::kVector || !IsAligned(to + head, 16) ||
        !IsAligned(from + head, Vector<From, Shape::kVector>::kAlignment)) {
      return Singles(to, from, n, worker);
    }
    const uint32_t vectors = (n - head) / Shape::kVector;
    const uint32_t body = vectors * Shape::kVector;
    Vectors(to + head, from + head, vectors, worker);
    for (uint32_t i = worker.thread; i < n - body; i += worker.threads) {
      const uint32_t at = i < head ? i : i + body;
      to[at] = convert(from[at]);
    }
  }
};

// The piece that element `at` belongs to.
SMDDP_HOST_DEVICE inline uint32_t PieceAt(const MoveJob& job, uint32_t at) {
  uint32_t low = 0, high = job.count;  // the answer is in [low, high)
  while (high - low > 1) {
    const uint32_t middle = (low + high) / 2;
    if (job.starts[middle] <= at) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// Where element `at` of the packed array, which is in piece i, is stored and loaded.
template <class To, class From>
struct Place {
  To* to;
  const From* from;

  SMDDP_HOST_DEVICE Place(const MoveJob& job, uint32_t i, uint32_t at) {
    const uint32_t packed_size = job.packs ? sizeof(To) : sizeof(From);
    const uint32_t piece_size = job.packs ? sizeof(From) : sizeof(To);
    char* const packed = static_cast<char*>(job.packed) + uint64_t{at} * packed_size;
    char* const piece = static_cast<char*>(job.pieces[i]) + uint64_t{at - job.starts[i]} * piece_size;
    to = reinterpret_cast<To*>(job.packs ? packed : piece);
    from = reinterpret_cast<const From*>(job.packs ? piece : packed);
  }
};

template <class To, class From>
SMDDP_HOST_DEVICE inline void MoveTile(const MoveJob& job, const Mover<To, From>& mover, uint32_t begin, uint32_t end,
                                       const Worker& worker) {
  const uint32_t first = PieceAt(job, begin), last = PieceAt(job, end - 1);
  if (last - first >= kCrumbs) {
    for (uint32_t at = begin + worker.thread; at < end; at += worker.threads) {
      const uint32_t i = PieceAt(job, at);
      if (job.pieces[i] == nullptr) continue;
      const Place<To, From> place(job, i, at);
      *place.to = mover.convert(*place.from);
    }
    return;
  }
  const uint32_t lanes = worker.threads < kWarpThreads ? worker.threads : kWarpThreads;
  const uint32_t warp = worker.thread / lanes, warps = worker.threads / lanes;
  const Worker in_warp{worker.thread % lanes, lanes};
  uint32_t small = 0;
  for (uint32_t i = first; i <= last; ++i) {
    if (job.pieces[i] == nullptr) continue;
    const uint32_t from_here = job.starts[i] > begin ? job.starts[i] : begin;
    const uint32_t to_here = job.starts[i + 1] < end ? job.starts[i + 1] : end;
    const bool whole_block = last - first < 2 || to_here - from_here >= kSmallPiece;
    if (!whole_block && small++ % warps != warp) continue;
    const Place<To, From> place(job, i, from_here);
    mover.Run(place.to, place.from, to_here - from_here, whole_block ? worker : in_warp);
  }
}

// Tiles end on 128-byte lines of the packed array; the first tile is shorter so that they do.
template <class To, class From>
SMDDP_HOST_DEVICE inline uint32_t TileSkew(const MoveJob& job) {
  const uint32_t offset = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(job.packed) & 127);
  return offset / static_cast<uint32_t>(job.packs ? sizeof(To) : sizeof(From));
}

template <class To, class From>
SMDDP_HOST_DEVICE inline uint32_t TilesOf(const MoveJob& job) {
  constexpr uint32_t kTile = MoveShape<To, From>::kTile;
  return (job.starts[job.count] + TileSkew<To, From>(job) + kTile - 1) / kTile;
}

// What thread `thread` of block `block` does.
template <class To, class From>
SMDDP_HOST_DEVICE inline void MoveThread(const MoveJob& job, uint32_t block, uint32_t blocks, uint32_t thread,
                                         uint32_t threads) {
  constexpr uint32_t kTile = MoveShape<To, From>::kTile;
  const Mover<To, From> mover{{job.scaled, static_cast<Wide<From>>(job.multiplier)}};
  const uint32_t skew = TileSkew<To, From>(job), tiles = TilesOf<To, From>(job), elements = job.starts[job.count];
  const Worker worker{thread, threads};
  for (uint32_t tile = block; tile < tiles; tile += blocks) {
    const uint32_t begin = tile == 0 ? 0 : tile * kTile - skew;
    const uint32_t end = (tile + 1) * kTile - skew;
    MoveTile<To, From>(job, mover, begin, end < elements ? end : elements, worker);
  }
}

}  // namespace
}  // namespace smddp
