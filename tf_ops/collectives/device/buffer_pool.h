// Memory that buckets reuse. It is allocated in the first steps and freed only when the context ends.
//
// A block becomes free when the work on it has been put on streams, not when the work has run: the next user's stream
// waits for the rest. There are as many blocks of a size as were in use, or asked for, at the same time.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "device/events.h"

namespace smddp {

// A block in use. A block that is not given back is never reused: its work was interrupted, and its state is unknown.
class BufferLease {
 public:
  BufferLease() = default;
  BufferLease(const BufferLease&) = delete;
  BufferLease& operator=(const BufferLease&) = delete;

  bool held() const { return block_ != nullptr; }
  std::byte* data() const;
  // `until` marks the last work that touches the block.
  void GiveBack(PooledEventPtr until);

 private:
  friend class BufferPool;
  struct Block;

  class BufferPool* home_ = nullptr;
  Block* block_ = nullptr;
  bool refused_ = false;  // it has asked for a block, and gets a new one
};

// Threads:   the engine's.
// Ownership: outlives the memory that is in use; frees it all when nothing uses it any more.
class BufferPool {
 public:
  enum class Kind { kDevice, kPinned };
  // May memory be allocated now? To allocate may wait for all work of the GPU.
  using MayAllocate = std::function<Result<bool>()>;
  BufferPool(Device& device, Kind kind, MayAllocate may_allocate);
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // Puts a block into `lease` if it holds none. The first access must be ordered after `stream`; without one the host
  // may access it immediately. False: no block is free, and none may be allocated now. Ask again, with the same lease:
  // it gets a new block, so that what waited once has one of its own from then on.
  Result<bool> Take(BufferLease* lease, size_t bytes, std::optional<DeviceStream> stream);

  // Keeps the memory until the process ends: work that could not be ended may still use it.
  void Leak() { leaked_ = true; }

 private:
  friend class BufferLease;
  using Block = BufferLease::Block;

  Block* Fitting(size_t bytes, bool for_host);
  Result<Block*> Add(size_t bytes);

  Device& device_;
  const Kind kind_;
  const MayAllocate may_allocate_;
  bool leaked_ = false;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::vector<Block*> free_;  // the one that is free for longest first
};

}  // namespace smddp
