#include "core/checksum.h"

#include <cstring>

#include "core/check.h"

namespace smddp {
namespace {

// Odd, so that multiplying loses nothing.
constexpr uint64_t kFirst = 0x9e3779b185ebca87;
constexpr uint64_t kSecond = 0xc2b2ae3d27d4eb4f;

uint64_t Rotate(uint64_t value, int by) { return (value << by) | (value >> (64 - by)); }

uint64_t Mix(uint64_t lane, uint64_t word) { return Rotate(lane + word * kSecond, 31) * kFirst; }

}  // namespace

void Checksum::Update(const void* data, size_t bytes) {
  SMDDP_CHECK_OP(length_ % kBlock, ==, uint64_t{0});
  length_ += bytes;
  const auto* at = static_cast<const unsigned char*>(data);
  uint64_t a = lanes_[0], b = lanes_[1], c = lanes_[2], d = lanes_[3], words[4];
  const auto mix = [&] {
    a = Mix(a, words[0]);
    b = Mix(b, words[1]);
    c = Mix(c, words[2]);
    d = Mix(d, words[3]);
  };
  for (; bytes >= kBlock; at += kBlock, bytes -= kBlock) {
    std::memcpy(words, at, kBlock);
    mix();
  }
  if (bytes > 0) {
    std::memset(words, 0, kBlock);
    std::memcpy(words, at, bytes);
    mix();
  }
  lanes_[0] = a, lanes_[1] = b, lanes_[2] = c, lanes_[3] = d;
}

uint64_t Checksum::Value() const {
  uint64_t value = length_;
  for (const uint64_t lane : lanes_) value = Mix(value, lane);
  value ^= value >> 33;
  value *= kSecond;
  return value ^ (value >> 29);
}

uint64_t ChecksumOf(const void* data, size_t bytes) {
  Checksum checksum;
  checksum.Update(data, bytes);
  return checksum.Value();
}

}  // namespace smddp
