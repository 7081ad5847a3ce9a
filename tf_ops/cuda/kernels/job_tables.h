// The work of one launch, as a table that is passed as a kernel parameter: no other memory has to live until the GPU
// is done. Smaller than 4 KiB, the parameter size that every driver accepts.
#pragma once

#include <cstdint>

namespace smddp {

// Elements that are only copied are identified by their size. The kernels' names contain the numbers (move.cu).
enum class Element : uint8_t { kHalf, kBFloat16, kFloat, kDouble, kBytes1, kBytes2, kBytes4, kBytes8 };

// How a job is launched: blocks without a tile (move.h) end at once. The registers allow 4 blocks of 256 threads with
// 64 each.
constexpr uint32_t kBlockThreads = 256, kBlocksPerProcessor = 4;
constexpr uint32_t kSmallestTile = 2048;  // elements

// Elements between one packed array and many pieces. Piece i is packed from element starts[i] to starts[i + 1]; null
// pieces are skipped.
struct MoveJob {
  static constexpr int kMaxPieces = 320;
  static constexpr int64_t kMaxElements = int64_t{1} << 30;

  void* packed;
  double multiplier;  // used only if scaled
  uint32_t count;     // of pieces
  Element to, from;
  bool scaled;
  bool packs;  // from the pieces to `packed`, else in the other direction
  void* pieces[kMaxPieces];
  uint32_t starts[kMaxPieces + 1];
};
static_assert(sizeof(MoveJob) <= 4096 - 64);

}  // namespace smddp
