// The layout of one rank's shared memory, and how large chunks are: pure arithmetic.
#include <algorithm>

#include "native/testing.h"
#include "transport/shm/node_layout.h"

namespace smddp {
namespace {

constexpr int64_t kMib = 1 << 20;

TEST_CASE("node layout: chunks grow with the ranks") {
  const std::pair<int, int64_t> sizes[] = {{1, kMib / 4},  {8, kMib / 4},   {9, 9 * 32768},
                                           {64, 2 * kMib}, {128, 4 * kMib}, {4096, 4 * kMib}};
  for (const auto& [pieces, bytes] : sizes) CHECK(DefaultChunkBytes(pieces) == bytes);
}

TEST_CASE("node layout: chunks fit into half of the shared memory") {
  // Eight ranks on each of 64 nodes; a container has 64 MiB unless it is given more.
  const std::pair<int64_t, int64_t> sizes[] = {{int64_t{1} << 62, 4 * kMib},
                                               {1024 * kMib, 4 * kMib},
                                               {512 * kMib, 2 * kMib},
                                               {64 * kMib, kMib / 4},
                                               {0, kMib / 4}};
  for (const auto& [free, bytes] : sizes) CHECK(ChunkBytesWithin(free, 512, 8, 8) == bytes);
}

struct Area {
  const void* begin;
  size_t bytes;
};

TEST_CASE("node layout: nothing overlaps, and all of it lies in the segment") {
  for (const int members : {1, 2, 5, 16}) {
    for (const size_t chunk_bytes : {size_t{4096}, size_t{256} << 10}) {
      CAPTURE(members);
      const NodeLayout layout(members, std::min(members, 3), chunk_bytes);
      std::vector<std::byte> memory(layout.total_bytes + 4096);
      std::byte* const segment =
          memory.data() + 4096 - reinterpret_cast<uintptr_t>(memory.data()) % 4096;  // as mmap gives it
      std::vector<Area> areas = {{layout.doorbell(segment), sizeof(Doorbell)},
                                 {layout.beat(segment), sizeof(std::atomic<int64_t>)}};
      for (int sender = 0; sender < members; ++sender)
        areas.push_back({layout.inbox(segment, sender), sizeof(NoteRing)});
      for (int slot = 0; slot < NodeLayout::kSlots; ++slot) {
        areas.push_back({layout.readers(segment, slot), sizeof(std::atomic<uint32_t>)});
        areas.push_back({layout.slot(segment, slot), layout.capacity_of(slot)});
        CHECK(layout.pool_of(slot) == static_cast<Pool>(slot / NodeLayout::kSlotsPerPool));
        CHECK(layout.capacity_of(slot) == layout.slot_bytes[static_cast<int>(layout.pool_of(slot))]);
      }
      std::sort(areas.begin(), areas.end(), [](const Area& a, const Area& b) { return a.begin < b.begin; });
      const std::byte* end = segment;
      for (const Area& area : areas) {
        if (area.bytes == 0) continue;  // of a pool that a rank alone on its node does not need
        CHECK(static_cast<const std::byte*>(area.begin) >= end);
        end = static_cast<const std::byte*>(area.begin) + area.bytes;
      }
      CHECK(end <= segment + layout.total_bytes);
    }
  }
}

TEST_CASE("node layout: a slot holds what its pool is for") {
  const NodeLayout layout(4, 2, 64 << 10);
  const auto bytes = [&](Pool pool) { return layout.slot_bytes[static_cast<int>(pool)]; };
  CHECK(bytes(Pool::kContribution) >= 64 << 10);  // a chunk
  CHECK(bytes(Pool::kResult) >= (64 << 10) / 2);  // a slice of two reducers
  CHECK(bytes(Pool::kResult) < bytes(Pool::kContribution));
  CHECK(bytes(Pool::kCopy) > 0);
  CHECK(bytes(Pool::kControl) > 0);
}

TEST_CASE("node layout: notes and doorbells of several ranks share no cache line") {
  const NodeLayout layout(3, 3, 4096);
  auto* const segment = reinterpret_cast<std::byte*>(uintptr_t{1} << 20);
  for (int sender = 0; sender < 3; ++sender) {
    CHECK(reinterpret_cast<uintptr_t>(layout.inbox(segment, sender)) % 64 == 0);
  }
  for (int slot = 0; slot < NodeLayout::kSlots; ++slot) {
    CHECK(reinterpret_cast<uintptr_t>(layout.slot(segment, slot)) % 64 == 0);
  }
}

}  // namespace
}  // namespace smddp
