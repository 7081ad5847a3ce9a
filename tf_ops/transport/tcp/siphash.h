// SipHash-2-4 with 128 bits of output: a keyed hash for short messages that only who knows the key can compute.
// Source: J.-P. Aumasson, D. J. Bernstein, "SipHash: a fast short-input PRF", INDOCRYPT 2012; the output of 128 bits as
// in the authors' reference implementation. Numbers are little-endian, as everything that ranks send each other.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "transport/world.h"

namespace smddp {

class SipHash {
 public:
  static Bits128 Of(const Bits128& key, std::string_view message) {
    SipHash hash(key);
    const size_t whole = message.size() / 8 * 8;
    uint64_t word = 0;
    for (size_t at = 0; at < whole; at += 8) {
      std::memcpy(&word, message.data() + at, 8);
      hash.Add(word);
    }
    word = 0;
    std::memcpy(&word, message.data() + whole, message.size() - whole);
    hash.Add(word | uint64_t{message.size()} << 56);
    const uint64_t low = hash.Finish(0xee, 2);
    return {low, hash.Finish(0xdd, 1)};
  }

 private:
  explicit SipHash(const Bits128& key)
      : v_{key[0] ^ 0x736f6d6570736575ull, key[1] ^ 0x646f72616e646f6dull ^ 0xee, key[0] ^ 0x6c7967656e657261ull,
           key[1] ^ 0x7465646279746573ull} {}

  static uint64_t Rotate(uint64_t value, int bits) { return value << bits | value >> (64 - bits); }

  void Round(int times) {
    for (int i = 0; i < times; ++i) {
      Mix(0, 1, 13, 32);
      Mix(2, 3, 16, 0);
      Mix(0, 3, 21, 0);
      Mix(2, 1, 17, 32);
    }
  }
  // Half a round of two words.
  void Mix(int a, int b, int turn_b, int turn_a) {
    v_[a] += v_[b];
    v_[b] = Rotate(v_[b], turn_b) ^ v_[a];
    if (turn_a != 0) v_[a] = Rotate(v_[a], turn_a);
  }
  void Add(uint64_t word) {
    v_[3] ^= word;
    Round(2);
    v_[0] ^= word;
  }
  // `into`: the word that the constant is mixed into.
  uint64_t Finish(uint64_t constant, int into) {
    v_[into] ^= constant;
    Round(4);
    return v_[0] ^ v_[1] ^ v_[2] ^ v_[3];
  }

  std::array<uint64_t, 4> v_;
};

}  // namespace smddp
