// TensorFlow's allocator for tensors in host memory, with the large ones in memory that the ranks of a node map. A
// library of its own: it registers before TensorFlow has its first tensor, so `hvd.init` loads it before the ops
// (smddp_tf/_native/shared_tensors.py). It needs neither the engine nor the ops.
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

void* AlignedBlock(size_t alignment, size_t bytes) {
  void* block = nullptr;
  const size_t aligned = std::max(alignment, sizeof(void*));
  return posix_memalign(&block, aligned, std::max<size_t>(bytes, 1)) == 0 ? block : nullptr;
}

// TensorFlow aborts the process where an allocator is registered after it has used one, and has no question for that.
// The template argument of an explicit instantiation may name a private member ([temp.explicit]), so this reads it.
template <bool tsl::AllocatorFactoryRegistry::* kMember>
struct InUse {
  friend bool AllocatorInUse(const tsl::AllocatorFactoryRegistry& registry) { return registry.*kMember; }
};
bool AllocatorInUse(const tsl::AllocatorFactoryRegistry& registry);
template struct InUse<&tsl::AllocatorFactoryRegistry::first_alloc_made_>;

double Seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

class Allocator final : public tsl::Allocator {
 public:
  explicit Allocator(SharedArena& arena) : arena_(arena) {}

  std::string Name() override { return "smddp_shared"; }
  tsl::AllocatorMemoryType GetMemoryType() const override { return tsl::AllocatorMemoryType::kHostPageable; }

  // Where the arena has no room, and for small blocks, the system's memory.
  void* AllocateRaw(size_t alignment, size_t bytes) override {
    if (bytes >= kLeastShared && alignment <= SharedArena::kAlignment) {
      if (void* block = arena_.Allocate(bytes)) return block;
    }
    return AlignedBlock(alignment, bytes);
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

// For TensorFlow's BFC allocator (TF_CPU_ALLOCATOR_USE_BFC), which keeps memory itself; it is not shared.
class SubAllocator final : public tsl::SubAllocator {
 public:
  SubAllocator() : tsl::SubAllocator({}, {}) {}
  void* Alloc(size_t alignment, size_t bytes, size_t* received) override {
    *received = bytes;
    return AlignedBlock(alignment, bytes);
  }
  void Free(void* block, size_t /*bytes*/) override { std::free(block); }
  bool SupportsCoalescing() const override { return false; }
};

class Factory final : public tsl::AllocatorFactory {
 public:
  explicit Factory(SharedArena& arena) : arena_(arena) {}
  tsl::Allocator* CreateAllocator() override { return new Allocator(arena_); }
  tsl::SubAllocator* CreateSubAllocator(int /*numa_node*/) override { return new SubAllocator; }

 private:
  SharedArena& arena_;
};

SharedArena* RegisteredArena(size_t capacity) {
  tsl::AllocatorFactoryRegistry& registry = *tsl::AllocatorFactoryRegistry::singleton();
  if (AllocatorInUse(registry)) return nullptr;
  SharedArena* const arena = SharedArena::Create(capacity, &Seconds).release();
  if (arena != nullptr) registry.Register(__FILE__, __LINE__, "SmddpShared", kPriority, new Factory(*arena));
  return arena;
}

}  // namespace
}  // namespace smddp::ops

// Returns the file of the memory, the same one each time. -1: the system has none, or TensorFlow has tensors already;
// nothing is changed then. The memory is never destroyed, because tensors may live until the process ends.
extern "C" __attribute__((visibility("default"))) int smddp_share_tensors(size_t capacity, void** data, size_t* bytes) {
  static smddp::ops::SharedArena* const arena = smddp::ops::RegisteredArena(capacity);
  if (arena == nullptr) return -1;
  *data = arena->data();
  *bytes = arena->capacity();
  return arena->file();
}
