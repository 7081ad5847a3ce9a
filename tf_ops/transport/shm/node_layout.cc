#include "transport/shm/node_layout.h"

#include <algorithm>

#include "core/slice.h"

namespace smddp {
namespace {

constexpr size_t kPage = 4096;
constexpr int64_t kLeastChunkBytes = 256 << 10;
constexpr size_t kCopyBytes = 128 << 10;
constexpr size_t kControlBytes = 16 << 10;

size_t RoundUp(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

int64_t DefaultChunkBytes(int pieces) {
  constexpr int64_t kPieceBytes = 32 << 10, kMost = 4 << 20;
  return std::clamp(kPieceBytes * pieces, kLeastChunkBytes, kMost);
}

int64_t ChunkBytesWithin(int64_t free_bytes, int pieces, int members, int reducers) {
  int64_t chunk = DefaultChunkBytes(pieces);
  const auto needed = [&] {
    return members * static_cast<int64_t>(NodeLayout(members, reducers, static_cast<size_t>(chunk)).total_bytes);
  };
  while (chunk > kLeastChunkBytes && needed() > free_bytes / 2) chunk = std::max(chunk / 2, kLeastChunkBytes);
  return chunk;
}

NodeLayout::NodeLayout(int members_in, int reducers, size_t chunk_bytes) : members(members_in) {
  slot_bytes[static_cast<int>(Pool::kContribution)] = members > 1 ? RoundUp(chunk_bytes, kPage) : 0;
  slot_bytes[static_cast<int>(Pool::kResult)] = RoundUp(chunk_bytes / reducers + 2 * kSliceAlignment, kPage);
  slot_bytes[static_cast<int>(Pool::kCopy)] = members > 1 ? kCopyBytes : 0;
  slot_bytes[static_cast<int>(Pool::kControl)] = members > 1 ? kControlBytes : 0;

  beat_at_ = RoundUp(sizeof(Doorbell), 64);
  rings_at_ = beat_at_ + 64;
  readers_at_ = RoundUp(rings_at_ + members * sizeof(NoteRing), 64);
  size_t at = RoundUp(readers_at_ + kSlots * 64, kPage);  // a cache line per count: readers of different slots
  for (int pool = 0; pool < kPoolCount; ++pool) {
    pool_at_[pool] = at;
    at += kSlotsPerPool * slot_bytes[pool];
  }
  total_bytes = at;
}

NoteRing* NodeLayout::inbox(std::byte* segment, int sender) const {
  return reinterpret_cast<NoteRing*>(segment + rings_at_) + sender;
}

std::atomic<uint32_t>* NodeLayout::readers(std::byte* segment, int slot) const {
  return reinterpret_cast<std::atomic<uint32_t>*>(segment + readers_at_ + slot * 64);
}

std::byte* NodeLayout::slot(std::byte* segment, int slot) const {
  const int pool = slot / kSlotsPerPool;
  return segment + pool_at_[pool] + (slot % kSlotsPerPool) * slot_bytes[pool];
}

}  // namespace smddp
