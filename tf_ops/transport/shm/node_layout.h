// The layout of one rank's shared memory. Pure arithmetic: all ranks of a node compute the same.
//
//   [doorbell] [beat] [one inbox ring per sender of the node] [reader counts]
//   [slots for contributions] [for results] [for copies] [for control messages]
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/sync/doorbell.h"

namespace smddp {

enum class Pool : int {
  kContribution = 0,  // one chunk: contributions that other ranks of the node will sum
  kResult = 1,        // one slice of a chunk: sums between the node and the rail
  kCopy = 2,          // pieces of plain messages
  kControl = 3,       // pieces of control messages: a separate pool, so that data never delay them
};
constexpr int kPoolCount = 4;

// The chunk size when the user sets none. A chunk is cut into `pieces`, one for every reducer of every node. Of more
// than 8 each has 32 KiB, so that the cost per message does not dominate (docs/decisions/0023); at most 4 MiB, so that
// chunks stay in the cache, and slots small.
int64_t DefaultChunkBytes(int pieces);
// The same, or less where the segments of `members` ranks would take more than half of the node's free shared memory.
int64_t ChunkBytesWithin(int64_t free_bytes, int pieces, int members, int reducers);

// What a sender tells a receiver about one of its slots.
struct SlotNote {
  uint32_t tag = 0;  // PackTag; of a slot for control messages not used
  uint32_t bytes = 0;
  uint16_t slot = 0;
  uint8_t last = 0;  // the last piece of a message
  // The extents that make up the data, of the table at the end of the slot; none: the first `bytes` of the slot.
  uint16_t first_extent = 0, extents = 0;
};

// A piece of published data: bytes of the slot, or of the memory of the sender's tensors, which are not copied then.
// Extent k of a slot lies (k + 1) * sizeof(Extent) before the slot's end.
struct Extent {
  uint64_t offset = 0;  // in the slot, or in that memory
  uint32_t bytes = 0;
  uint32_t of_tensor = 0;
};

// One sender, one receiver. Never full: a sender has fewer slots than the ring has entries, and each slot is
// announced to one receiver at most once at a time.
struct NoteRing {
  static constexpr uint32_t kPlaces = 64;
  alignas(64) std::atomic<uint32_t> written{0};
  alignas(64) std::atomic<uint32_t> read{0};
  SlotNote notes[kPlaces];
};

struct NodeLayout {
  static constexpr int kSlotsPerPool = 8;
  static constexpr int kSlots = kPoolCount * kSlotsPerPool;
  static_assert(kSlots < static_cast<int>(NoteRing::kPlaces));

  NodeLayout(int members, int reducers, size_t chunk_bytes);

  int members = 1;
  size_t slot_bytes[kPoolCount] = {};
  size_t total_bytes = 0;

  Doorbell* doorbell(std::byte* segment) const { return reinterpret_cast<Doorbell*>(segment); }
  // When the owner last published that it is alive: CLOCK_MONOTONIC, in nanoseconds; 0: not yet.
  std::atomic<int64_t>* beat(std::byte* segment) const {
    return reinterpret_cast<std::atomic<int64_t>*>(segment + beat_at_);
  }
  NoteRing* inbox(std::byte* segment, int sender) const;
  std::atomic<uint32_t>* readers(std::byte* segment, int slot) const;
  std::byte* slot(std::byte* segment, int slot) const;
  Pool pool_of(int slot) const { return static_cast<Pool>(slot / kSlotsPerPool); }
  size_t capacity_of(int slot) const { return slot_bytes[slot / kSlotsPerPool]; }

 private:
  size_t beat_at_ = 0, rings_at_ = 0, readers_at_ = 0, pool_at_[kPoolCount] = {};
};

}  // namespace smddp
