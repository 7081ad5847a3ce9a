#include <algorithm>
#include <vector>

#include "core/checksum.h"
#include "native/testing.h"

namespace smddp {
namespace {

std::vector<uint8_t> BytesOf(size_t count, int seed) {
  std::vector<uint8_t> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<uint8_t>((i * 131 + seed * 17 + i / 251) % 256);
  return bytes;
}

TEST_CASE("a checksum in pieces is that of the whole") {
  for (const size_t length : {0, 1, 31, 32, 33, 64, 1000, 4096 + 7}) {
    CAPTURE(length);
    const std::vector<uint8_t> bytes = BytesOf(length, 1);
    for (const size_t first : {size_t{0}, Checksum::kBlock, 3 * Checksum::kBlock}) {
      if (first > length) continue;
      Checksum pieces;
      pieces.Update(bytes.data(), first);
      pieces.Update(bytes.data() + first, length - first);
      CHECK(pieces.Value() == ChecksumOf(bytes.data(), length));
    }
  }
}

TEST_CASE("a checksum notices any changed bit, and what was exchanged") {
  const std::vector<uint8_t> bytes = BytesOf(3 * 32 + 5, 2);
  const uint64_t right = ChecksumOf(bytes.data(), bytes.size());
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::vector<uint8_t> damaged = bytes;
    damaged[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    CAPTURE(bit);
    CHECK(ChecksumOf(damaged.data(), damaged.size()) != right);
  }
  std::vector<uint8_t> swapped = bytes;
  std::swap_ranges(swapped.begin(), swapped.begin() + 32, swapped.begin() + 32);  // two blocks
  CHECK(ChecksumOf(swapped.data(), swapped.size()) != right);
  swapped = bytes;
  std::swap_ranges(swapped.begin(), swapped.begin() + 8, swapped.begin() + 8);  // two lanes
  CHECK(ChecksumOf(swapped.data(), swapped.size()) != right);
}

TEST_CASE("zeros at the end change a checksum") {
  std::vector<uint64_t> seen;
  const std::vector<uint8_t> zeros(100, 0);
  for (size_t length = 0; length <= zeros.size(); ++length) seen.push_back(ChecksumOf(zeros.data(), length));
  std::sort(seen.begin(), seen.end());
  CHECK(std::adjacent_find(seen.begin(), seen.end()) == seen.end());
}

}  // namespace
}  // namespace smddp
