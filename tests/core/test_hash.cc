#include <algorithm>
#include <string>
#include <vector>

#include "core/hash.h"
#include "native/testing.h"

namespace smddp {
namespace {

TEST_CASE("FNV-1a of known texts") {  // the published vectors of the 64-bit variant, from the offset that is used here
  const auto step = [](uint64_t hash, unsigned char byte) { return (hash ^ byte) * 0x100000001b3ull; };
  CHECK(Fnv1a("") == 1469598103934665603ull);
  CHECK(Fnv1a("a") == step(1469598103934665603ull, 'a'));
  CHECK(Fnv1a("ab") == step(step(1469598103934665603ull, 'a'), 'b'));
  CHECK(Fnv1a("a", 0xcbf29ce484222325ull) == 0xaf63dc4c8601ec8cull);  // FNV's own start
  CHECK(Fnv1a("foobar", 0xcbf29ce484222325ull) == 0x85944171f73967e8ull);
  CHECK(Fnv1a("\xff") == step(1469598103934665603ull, 0xff));  // bytes, not signed characters
}

TEST_CASE("a hash in parts is that of the whole") {
  const std::string text = "optimizer/dense/kernel:0";
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    CHECK(Fnv1a(text.substr(cut), Fnv1a(text.substr(0, cut))) == Fnv1a(text));
  }
}

std::vector<uint8_t> BytesOf(size_t count, int seed) {
  std::vector<uint8_t> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<uint8_t>((i * 131 + seed * 17 + i / 251) % 256);
  return bytes;
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
