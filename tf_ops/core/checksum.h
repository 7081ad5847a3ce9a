// A 64-bit checksum of bytes: any change of one word is found, any other change but for one in 2^64. For accidents, not
// against people. The same on every machine of one byte order; nothing of it is kept.
//
// Four lanes of multiply and rotate, as xxHash does it, because they run beside each other.
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
