// FNV-1a, 64 bits: the same on every rank and every machine. Not safe for input that an attacker may choose.
#pragma once

#include <cstdint>
#include <string_view>

namespace smddp {

constexpr uint64_t kFnvStart = 1469598103934665603ull;

// `start`: the hash of the preceding parts, to hash several parts in sequence.
inline uint64_t Fnv1a(std::string_view bytes, uint64_t start = kFnvStart) {
  uint64_t hash = start;
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 1099511628211ull;
  return hash;
}

}  // namespace smddp
