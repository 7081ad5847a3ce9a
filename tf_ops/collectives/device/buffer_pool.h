// Memory that buckets use in turn: allocated in the first steps, never given up before the end.
//
// A block comes free when the work on it has been put on streams, not when it has run: the next user's stream waits for
// what is left. There are as many blocks of a size as were in use at once.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "collectives/device/event_pool.h"

namespace smddp {

// A block in use. One that is not given back is never used again: its work was broken off, nobody knows how far it
// came.
class BufferLease {
 public:
  BufferLease() = default;
  BufferLease(BufferLease&& other) noexcept { *this = std::move(other); }
  BufferLease& operator=(BufferLease&& other) noexcept;
  BufferLease(const BufferLease&) = delete;
  BufferLease& operator=(const BufferLease&) = delete;
  ~BufferLease() = default;

  bool held() const { return block_ != nullptr; }
  std::byte* data() const;
  // Tells the block apart from the others of its kind, for good.
  uint32_t number() const;
  // As Device::Export; asked for once in a block's life.
  Result<std::string> Export();
  // What was put on streams until `until` is the last that touches it.
  void GiveBack(PooledEventPtr until);

 private:
  friend class BufferPool;
  struct Block;
  explicit BufferLease(class BufferPool* home, Block* block) : home_(home), block_(block) {}

  class BufferPool* home_ = nullptr;
  Block* block_ = nullptr;
};

// Threads:   the engine's.
// Ownership: outlives the memory that is in use; frees all of it when nothing uses it any more.
class BufferPool {
 public:
  enum class Kind { kDevice, kPinned };
  BufferPool(Device& device, Kind kind);
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // Whatever touches it first does so in the order of `stream`, or later.
  Result<BufferLease> Take(size_t bytes, DeviceStream stream);
  // The host may touch it at once.
  Result<BufferLease> TakeForHost(size_t bytes);

  int64_t allocations() const { return static_cast<int64_t>(blocks_.size()); }
  // Leaves the memory to the process's end: work that could not be ended may use it.
  void Leak() { leaked_ = true; }

 private:
  friend class BufferLease;
  using Block = BufferLease::Block;

  Block* Fitting(size_t bytes, bool for_host);
  Result<Block*> Add(size_t bytes);

  Device& device_;
  const Kind kind_;
  bool leaked_ = false;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::vector<Block*> free_;  // the one that is free for longest first
};

}  // namespace smddp
