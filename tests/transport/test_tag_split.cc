// How our tags of 29 bits fit MPI's, which are shorter over UCX: the upper bits choose a communicator.
#include <algorithm>
#include <set>

#include "native/testing.h"
#include "transport/tag_split.h"

namespace smddp {
namespace {

constexpr int64_t kUcx = (1 << 23) - 1;  // its MPI_TAG_UB
constexpr int64_t kLargest[] = {(int64_t{1} << 31) - 1, (1 << 29) - 1, (1 << 29) - 2, kUcx + 1, kUcx, kUcx - 1,
                                (1 << 20) - 1};
using Place = std::pair<int, int>;  // communicator, tag

Place PlaceOf(const TagSplit& tags, uint32_t packed) { return {tags.CommunicatorOf(packed), tags.MpiTagOf(packed)}; }

TEST_CASE("as few communicators as possible") {
  const int expected[] = {1, 1, 2, 64, 64, 128, 512};
  for (size_t i = 0; i < std::size(expected); ++i) CHECK(TagSplit(kLargest[i]).communicators() == expected[i]);
}

TEST_CASE("every message has a place of its own") {
  // Steps of a stage, stages of an operation, neighbouring operations, and the control messages.
  std::set<uint32_t> operations = {kMaxOperation};
  for (int bit = 0; bit < 24; ++bit) {
    for (const int away : {-1, 0, 1}) operations.insert((uint32_t{1} << bit) + static_cast<uint32_t>(away));
  }
  for (const int64_t largest : kLargest) {
    CAPTURE(largest);
    const TagSplit tags(largest);
    std::set<Place> places = {PlaceOf(tags, TagSplit::kControl)};
    size_t count = 1;
    for (const uint32_t operation : operations) {
      for (uint8_t stage = 0; stage <= kMaxStage; ++stage) {
        for (uint16_t step = 0; step < kMaxStepsInFlight; ++step) {
          const uint32_t packed = PackTag({operation, stage, step});
          if (packed == TagSplit::kControl) continue;  // never given out
          places.insert(PlaceOf(tags, packed));
          ++count;
        }
      }
    }
    CHECK(places.size() == count);
    for (const auto& [communicator, tag] : places) {
      CHECK(communicator >= 0);
      CHECK(communicator < tags.communicators());
      CHECK(tag >= 0);
      CHECK(tag <= largest);
    }
  }
}

TEST_CASE("tags of UCX") {
  const TagSplit tags(kUcx);
  CHECK(PlaceOf(tags, PackTag({0x123456, 2, 5})) == Place(0x123456 >> 18, (0x123456 & 0x3FFFF) << 5 | 2 << 3 | 5));
  CHECK(PlaceOf(tags, TagSplit::kControl) == Place(63, kUcx));
}

TEST_CASE("a step counts by its low bits") { CHECK(PackTag({7, 1, 11}) == PackTag({7, 1, 3})); }

}  // namespace
}  // namespace smddp
