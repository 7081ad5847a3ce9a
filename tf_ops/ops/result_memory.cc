#include "ops/result_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <list>
#include <mutex>
#include <string>
#include <unordered_map>

namespace smddp::ops {
namespace {

constexpr size_t kHugePage = 2 << 20;
constexpr size_t kSizeUnit = 256 << 10;  // results of nearly the same size can use the same block

size_t RoundedUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

void* Map(size_t bytes) {
  // One huge page more than needed, so that the block can start on a huge-page boundary.
  void* mapped = mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  char* const begin = static_cast<char*>(mapped);
  char* const block = reinterpret_cast<char*>(RoundedUp(reinterpret_cast<size_t>(begin), kHugePage));
  if (block != begin) munmap(begin, block - begin);
  const size_t behind = begin + kHugePage - block;
  if (behind > 0) munmap(block + bytes, behind);
  (void)madvise(block, bytes, MADV_HUGEPAGE);  // optional: without huge pages it works as well
  return block;
}

class Allocator final : public tensorflow::Allocator {
 public:
  std::string Name() override { return "smddp_results"; }

  void* AllocateRaw(size_t /*alignment*/, size_t bytes) override {
    const size_t size = RoundedUp(bytes, kSizeUnit);
    {
      std::lock_guard<std::mutex> lock(mutex_);
      for (auto at = kept_.begin(); at != kept_.end(); ++at) {
        if (sizes_.at(*at) != size) continue;
        void* block = *at;
        kept_.erase(at);
        kept_bytes_ -= size;
        NoteUse();
        return block;
      }
    }
    void* block = Map(size);
    if (block == nullptr) return nullptr;
    std::lock_guard<std::mutex> lock(mutex_);
    sizes_[block] = size;
    all_bytes_ += size;
    NoteUse();
    if (freed_[size] > 0) {
      --freed_[size];
      limit_ = std::min(limit_ + size / 2, std::max(kKeptResultBytes, most_used_bytes_));
    }
    return block;
  }

  void DeallocateRaw(void* block) override {
    std::lock_guard<std::mutex> lock(mutex_);
    kept_.push_front(block);
    kept_bytes_ += sizes_.at(block);
    while (kept_bytes_ > limit_) {
      void* const oldest = kept_.back();
      const size_t size = sizes_.at(oldest);
      kept_.pop_back();
      sizes_.erase(oldest);
      ++freed_[size];
      kept_bytes_ -= size;
      all_bytes_ -= size;
      munmap(oldest, size);
    }
  }

 private:
  void NoteUse() { most_used_bytes_ = std::max(most_used_bytes_, all_bytes_ - kept_bytes_); }

  std::mutex mutex_;
  std::unordered_map<void*, size_t> sizes_;  // of all blocks, in use or cached
  std::list<void*> kept_;                    // the most recently freed first
  size_t all_bytes_ = 0, kept_bytes_ = 0, most_used_bytes_ = 0, limit_ = kKeptResultBytes;
  std::unordered_map<size_t, int64_t> freed_;  // by size: blocks given back and not asked for again
};

}  // namespace

tensorflow::Allocator* ResultMemory() {
  static auto* const allocator = new Allocator;
  return allocator;
}

}  // namespace smddp::ops
