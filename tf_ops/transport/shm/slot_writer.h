// Writes into a slot what cannot be one copy: pieces that are copied and pieces that stay where my tensors lie, for one
// reader after another.
//
// Threads:   one, the engine's.
// Contract:  the slot is held until NodeChannel::Returned, and what is referred to does not change until then. What
//            one reader gets is no longer than the slot. References to kLeastReferredBytes or more leave room for the
//            table of extents.
#pragma once

#include <cstddef>
#include <vector>

#include "transport/shm/node_channel.h"

namespace smddp {

// Shorter pieces are copied: they are in the cache, and an extent costs as much.
constexpr size_t kLeastReferredBytes = 2 << 10;

class SlotWriter {
 public:
  SlotWriter(NodeChannel& node, const Slot& slot) : node_(node), slot_(slot) {}

  // Appends bytes for the caller to write.
  std::byte* Append(size_t bytes);
  // Appends memory of my tensors (NodeChannel::Shares).
  void Refer(const void* data, size_t bytes);
  // Publishes what was appended since the last call.
  void Publish(const Tag& tag, const std::vector<int>& readers);

 private:
  void Add(uint64_t offset, size_t bytes, bool of_tensor);

  NodeChannel& node_;
  const Slot slot_;
  size_t copied_ = 0;
  int extents_ = 0, published_ = 0;
  size_t bytes_ = 0, referred_ = 0;  // not yet published
  Extent last_;
};

}  // namespace smddp
