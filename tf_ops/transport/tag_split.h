// Where MPI's tags are shorter than ours: which of our bits are MPI's tag, and which choose a communicator.
#pragma once

#include <cstdint>

#include "transport/transport.h"

namespace smddp {

// A pure function of the largest tag that MPI allows, which is the same on all ranks. At least 1.
class TagSplit {
 public:
  static constexpr int kTagBits = 24 + 2 + kStepBits;
  // The tag of control messages, one above every data tag: PackTag's 29 bits reach it only for the last operation
  // number, which is never given out.
  static constexpr uint32_t kControl = (uint32_t{1} << kTagBits) - 1;

  explicit TagSplit(int64_t largest_tag) {
    while (bits_ < kTagBits && (int64_t{2} << bits_) - 1 <= largest_tag) ++bits_;
  }

  // As many have the same members and no other messages.
  int communicators() const { return CommunicatorOf(kControl) + 1; }
  int CommunicatorOf(uint32_t packed) const { return static_cast<int>(packed >> bits_); }
  int MpiTagOf(uint32_t packed) const { return static_cast<int>(packed & ((uint32_t{1} << bits_) - 1)); }

 private:
  int bits_ = 0;
};

}  // namespace smddp
