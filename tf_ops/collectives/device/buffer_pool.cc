#include "collectives/device/buffer_pool.h"

#include <algorithm>

namespace smddp {
namespace {

constexpr size_t kSmallStep = 64 << 10, kLargeStep = 1 << 20;
// A block serves requests down to 1 / kMaxWaste of its size.
constexpr size_t kMaxWaste = 4;

size_t RoundedUp(size_t bytes) {
  const size_t step = bytes <= kLargeStep ? kSmallStep : kLargeStep;
  return std::max(step, (bytes + step - 1) / step * step);
}

}  // namespace

struct BufferLease::Block {
  std::byte* data = nullptr;
  size_t bytes = 0;
  PooledEventPtr until;  // null: the work has finished
};

std::byte* BufferLease::data() const { return block_->data; }

void BufferLease::GiveBack(PooledEventPtr until) {
  block_->until = std::move(until);
  home_->free_.push_back(std::exchange(block_, nullptr));
}

BufferPool::BufferPool(Device& device, Kind kind, MayAllocate may_allocate)
    : device_(device), kind_(kind), may_allocate_(std::move(may_allocate)) {}

BufferPool::~BufferPool() {
  if (leaked_) return;
  for (const auto& block : blocks_) {
    kind_ == Kind::kDevice ? device_.Free(block->data) : device_.FreePinned(block->data);
  }
}

Result<bool> BufferPool::Take(BufferLease* lease, size_t bytes, std::optional<DeviceStream> stream) {
  if (lease->held()) return true;
  Block* block = lease->refused_ ? nullptr : Fitting(bytes, /*for_host=*/!stream);
  if (block == nullptr) {
    SMDDP_ASSIGN_OR_RETURN(const bool may, may_allocate_());
    lease->refused_ = !may;
    if (!may) return false;
    SMDDP_ASSIGN_OR_RETURN(block, Add(bytes));
  }
  lease->home_ = this;
  lease->block_ = block;
  if (stream && block->until != nullptr) SMDDP_RETURN_IF_ERROR(block->until->MakeWait(*stream));
  block->until = nullptr;
  return true;
}

// The smallest block that is large enough; among equal sizes the one that has been free for longest.
BufferPool::Block* BufferPool::Fitting(size_t bytes, bool for_host) {
  const size_t most = RoundedUp(bytes) * kMaxWaste;
  auto best = free_.end();
  for (auto at = free_.begin(); at != free_.end(); ++at) {
    const Block& block = **at;
    if (block.bytes < bytes || block.bytes > most) continue;
    if (best != free_.end() && block.bytes >= (*best)->bytes) continue;
    if (for_host && block.until != nullptr) {
      const Result<bool> passed = block.until->Passed();
      if (!passed.ok() || !*passed) continue;
    }
    best = at;
  }
  if (best == free_.end()) return nullptr;
  Block* const block = *best;
  free_.erase(best);
  return block;
}

Result<BufferPool::Block*> BufferPool::Add(size_t bytes) {
  auto block = std::make_unique<Block>();
  block->bytes = RoundedUp(bytes);
  Result<void*> memory = kind_ == Kind::kDevice ? device_.Allocate(block->bytes) : device_.AllocatePinned(block->bytes);
  if (!memory.ok()) {
    const char* const advice =
        kind_ == Kind::kDevice ? " Fusion buffers need about as much GPU memory as the gradients: leave them some with "
                                 "tf.config.experimental.set_memory_growth(gpu, True) or a memory limit for TensorFlow."
                               : "";
    return Status(memory.status().reason(), memory.status().message() + advice);
  }
  block->data = static_cast<std::byte*>(*memory);
  blocks_.push_back(std::move(block));
  return blocks_.back().get();
}

}  // namespace smddp
