// A 64-bit checksum of bytes: any change of a single word is detected, any other change with a probability of 1 -
// 2^-64. It protects against accidents, not against attackers. The result is the same on all machines with the same
// byte order; checksums are not stored.
//
// Four lanes of multiply and rotate, as in xxHash, because they run in parallel.
#pragma once

#include <cstddef>
#include <cstdint>

namespace smddp {

class Checksum {
 public:
  static constexpr size_t kBlock = 32;

  // `bytes` must be a multiple of kBlock in every call but the last.
  void Update(const void* data, size_t bytes);
  uint64_t Value() const;

 private:
  uint64_t lanes_[4] = {0x60ea27eeadc0b5d6, 0xc2b2ae3d27d4eb4f, 0, 0x61c8864e7a143579};
  uint64_t length_ = 0;
};

uint64_t ChecksumOf(const void* data, size_t bytes);

}  // namespace smddp
