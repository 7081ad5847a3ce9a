#include "core/hash.h"

#include <cstring>

namespace smddp {
namespace {

// Odd, so that multiplying loses nothing.
constexpr uint64_t kFirst = 0x9e3779b185ebca87;
constexpr uint64_t kSecond = 0xc2b2ae3d27d4eb4f;

uint64_t Rotate(uint64_t value, int by) { return (value << by) | (value >> (64 - by)); }

uint64_t Mix(uint64_t lane, uint64_t word) { return Rotate(lane + word * kSecond, 31) * kFirst; }

}  // namespace

// Four lanes of multiply and rotate, as in xxHash, because they run in parallel.
uint64_t ChecksumOf(const void* data, size_t bytes) {
  uint64_t a = 0x60ea27eeadc0b5d6, b = 0xc2b2ae3d27d4eb4f, c = 0, d = 0x61c8864e7a143579, words[4];
  const auto mix = [&] {
    a = Mix(a, words[0]);
    b = Mix(b, words[1]);
    c = Mix(c, words[2]);
    d = Mix(d, words[3]);
  };
  const auto* at = static_cast<const unsigned char*>(data);
  size_t left = bytes;
  for (; left >= sizeof(words); at += sizeof(words), left -= sizeof(words)) {
    std::memcpy(words, at, sizeof(words));
    mix();
  }
  if (left > 0) {
    std::memset(words, 0, sizeof(words));
    std::memcpy(words, at, left);
    mix();
  }
  uint64_t value = bytes;
  for (const uint64_t lane : {a, b, c, d}) value = Mix(value, lane);
  value ^= value >> 33;
  value *= kSecond;
  return value ^ (value >> 29);
}

}  // namespace smddp
