// TensorFlow's allocator for tensors in host memory, with the large ones in memory that the ranks of a node map. A
// library of its own, because it must be loaded before TensorFlow has its first tensor
// (smddp_tf/_native/shared_tensors.py), and before MPI; it needs neither the engine nor the ops.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>

#include "ops/allocator/shared_arena.h"
#if __has_include("xla/tsl/framework/allocator_registry.h")
#include "xla/tsl/framework/allocator_registry.h"
#else
#include "tsl/framework/allocator_registry.h"
#endif

namespace smddp::ops {
namespace {

// Smaller tensors are copied in the cache, and are many.
constexpr size_t kLeastShared = 64 << 10;
constexpr int kPriority = 1000;  // TensorFlow's own have less

double Seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

class Allocator final : public tsl::Allocator {
 public:
  explicit Allocator(SharedArena& arena) : arena_(arena) {}

  std::string Name() override { return "smddp_shared"; }
  tsl::AllocatorMemoryType GetMemoryType() const override { return tsl::AllocatorMemoryType::kHostPageable; }

  // Where the arena has no room, and for small blocks, the system's memory.
  void* AllocateRaw(size_t alignment, size_t bytes) override {
    if (bytes >= kLeastShared) {
      if (void* block = arena_.Allocate(bytes)) return block;
    }
    void* block = nullptr;
    const size_t aligned = std::max(alignment, sizeof(void*));
    return posix_memalign(&block, aligned, std::max<size_t>(bytes, 1)) == 0 ? block : nullptr;
  }

  void DeallocateRaw(void* block) override {
    if (arena_.Owns(block)) {
      arena_.Free(block);
    } else {
      std::free(block);
    }
  }

 private:
  SharedArena& arena_;
};

class Factory final : public tsl::AllocatorFactory {
 public:
  explicit Factory(SharedArena& arena) : arena_(arena) {}
  tsl::Allocator* CreateAllocator() override { return new Allocator(arena_); }
  // TensorFlow asks for none: its BFC allocator for CPUs has one of its own.
  tsl::SubAllocator* CreateSubAllocator(int /*numa_node*/) override { return nullptr; }

 private:
  SharedArena& arena_;
};

}  // namespace
}  // namespace smddp::ops

// Before TensorFlow's first tensor, and once: TensorFlow ends the process otherwise. Returns the file of the memory, or
// -1 where the system has none; nothing is changed then. The memory is never destroyed, because tensors may live until
// the process ends.
extern "C" __attribute__((visibility("default"))) int smddp_share_tensors(size_t capacity, void** data, size_t* bytes) {
  static smddp::ops::SharedArena* const arena =
      smddp::ops::SharedArena::Create(capacity, &smddp::ops::Seconds).release();
  if (arena == nullptr) return -1;
  tsl::AllocatorFactoryRegistry::singleton()->Register(__FILE__, __LINE__, "SmddpShared", smddp::ops::kPriority,
                                                       new smddp::ops::Factory(*arena));
  *data = arena->data();
  *bytes = arena->capacity();
  return arena->file();
}
