// Hashes of bytes, each the same on every rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace smddp {

constexpr uint64_t kFnvStart = 1469598103934665603ull;

// FNV-1a, 64 bits: the same on every machine. Not safe for input that an attacker may choose. `start`: the hash of the
// preceding parts, to hash several parts in sequence.
inline uint64_t Fnv1a(std::string_view bytes, uint64_t start = kFnvStart) {
  uint64_t hash = start;
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 1099511628211ull;
  return hash;
}

// A 64-bit checksum of bytes: any change of a single word is detected, any other change with a probability of 1 -
// 2^-64. It protects against accidents, not against attackers. The result is the same on all machines with the same
// byte order; checksums are not stored.
uint64_t ChecksumOf(const void* data, size_t bytes);

}  // namespace smddp
