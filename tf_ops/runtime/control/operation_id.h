// The 24-bit numbers that identify operations on the wire (transport/transport.h). Pure arithmetic.
//
//   planned: 0 | plan (10 bits) | bucket (13 bits)
//   named:   1 | number (23 bits), each coordinator counting through its own range
//
// A number may be reused when its operation is over: within one pair of ranks equal tags are matched in order, and a
// rank starts a bucket's next reduction only after its last one.
#pragma once

#include <cstdint>

#include "core/status.h"

namespace smddp {

constexpr int kMaxPlans = 1 << 10;
constexpr int kBucketBits = 13;
constexpr int kMaxBuckets = 1 << kBucketBits;

inline Status TooManyPlans() {
  return Status(Reason::kNoResources, "More than ", kMaxPlans,
                " different lists of gradients at one time. Use fewer optimizers or tapes in one graph.");
}

inline uint32_t PlannedOperation(int plan, int bucket) {
  return (static_cast<uint32_t>(plan) << kBucketBits) | static_cast<uint32_t>(bucket);
}

inline uint32_t PlanOf(uint32_t planned_operation) { return planned_operation >> kBucketBits; }

inline uint32_t NamedOperation(int coordinator, int size, uint32_t count) {
  constexpr uint32_t kNumbers = (1u << 23) - 1;  // the last one is never assigned: it is MPI's control tag
  const uint32_t share = kNumbers / static_cast<uint32_t>(size);
  return (1u << 23) | (static_cast<uint32_t>(coordinator) * share + count % share);
}

}  // namespace smddp
