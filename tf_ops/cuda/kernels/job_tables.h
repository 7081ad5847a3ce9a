// What one launch does, as a table that travels with the launch: nothing else has to live until the GPU is done. Less
// than the 4 KiB of parameters that every driver takes.
#pragma once

#include <cstdint>

namespace smddp {

// Those that are only copied are told by their size alone.
enum class Element : uint8_t { kHalf, kBFloat16, kFloat, kDouble, kBytes1, kBytes2, kBytes4, kBytes8 };

// Elements between one packed array and many pieces. Piece i is packed from element starts[i] to starts[i + 1]; null
// pieces are left out.
struct MoveJob {
  static constexpr int kMaxPieces = 320;
  static constexpr int64_t kMaxElements = int64_t{1} << 30;

  void* packed;
  uint64_t* non_finite;  // grows by the NaN and infinities written; null: not counted
  double multiplier;     // looked at only if scaled
  uint32_t count;        // of pieces
  Element to, from;
  bool scaled;
  bool packs;  // from the pieces to `packed`, else the other way
  void* pieces[kMaxPieces];
  uint32_t starts[kMaxPieces + 1];
};
static_assert(sizeof(MoveJob) <= 4096 - 64);

// into[i] = sources[0][i] + sources[1][i] + ..., from two sources up. A floating element.
struct SumJob {
  static constexpr int kMaxSources = 64;

  void* into;
  uint64_t* non_finite;
  int64_t elements;
  int32_t count;  // of sources
  Element element;
  const void* sources[kMaxSources];
};

}  // namespace smddp
