#include "ops/allocator/shared_arena.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

namespace smddp::ops {
namespace {

constexpr size_t kPage = 4096;
// Less than this is not worth a call into the system.
constexpr size_t kLeastGivenBack = 16 << 20;

// Blocks of equal size shall not begin at the same place of a page: a processor takes a read for one of a write that is
// under way where their last 12 bits are equal.
constexpr size_t kUnit = SharedArena::kAlignment, kApart = 5 * kUnit;

size_t SizeOfBlock(size_t bytes) { return (bytes + kUnit - 1) / kUnit * kUnit + kApart; }

// Those that a fork must leave to its parent. Not destroyed: a fork may come at any time.
struct Arenas {
  std::mutex mutex;
  std::set<SharedArena*> all;
};
Arenas& TheArenas() {
  static auto* const arenas = new Arenas;
  return *arenas;
}

}  // namespace

std::unique_ptr<SharedArena> SharedArena::Create(size_t capacity, double (*seconds)()) {
  struct rlimit limit = {};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    capacity = std::min<size_t>(capacity, limit.rlim_cur);
  }
  capacity = capacity / kPage * kPage;
  const int file = memfd_create("smddp_tensors", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file < 0) return nullptr;
  void* at = MAP_FAILED;
  if (capacity > 0 && ftruncate(file, static_cast<off_t>(capacity)) == 0 &&
      fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0) {
    at = mmap(nullptr, capacity, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  }
  if (at == MAP_FAILED) {
    close(file);
    return nullptr;
  }
  (void)madvise(at, capacity, MADV_HUGEPAGE);  // where the system allows it for shared memory
  return std::unique_ptr<SharedArena>(new SharedArena(file, static_cast<std::byte*>(at), capacity, seconds));
}

SharedArena::SharedArena(int file, std::byte* data, size_t capacity, double (*seconds)())
    : file_(file), data_(data), capacity_(capacity), seconds_(seconds), period_begin_(seconds()) {
  AddFree(0, capacity);
  RegisterForks();
  std::lock_guard<std::mutex> lock(TheArenas().mutex);
  TheArenas().all.insert(this);
}

SharedArena::~SharedArena() {
  {
    std::lock_guard<std::mutex> lock(TheArenas().mutex);
    TheArenas().all.erase(this);
  }
  munmap(data_, capacity_);
  close(file_);
}

void SharedArena::RegisterForks() {
  const auto before = [] {
    TheArenas().mutex.lock();
    for (SharedArena* arena : TheArenas().all) arena->BeforeFork();
  };
  static constexpr auto after = [](bool in_child) {
    for (SharedArena* arena : TheArenas().all) arena->AfterFork(in_child);
    TheArenas().mutex.unlock();
  };
  [[maybe_unused]] static const int registered =
      pthread_atfork(before, [] { after(/*in_child=*/false); }, [] { after(/*in_child=*/true); });
}

void SharedArena::BeforeFork() {
  mutex_.lock();
  for (auto& [offset, block] : used_) block.forked = true;
}

void SharedArena::AfterFork(bool in_child) {
  if (in_child) {
    forked_ = true;
    (void)mmap(data_, capacity_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE | MAP_FIXED, file_, 0);
  }
  mutex_.unlock();
}

void* SharedArena::Allocate(size_t bytes) {
  if (forked_ || bytes == 0 || bytes > capacity_) return nullptr;
  const size_t size = SizeOfBlock(bytes);
  std::lock_guard<std::mutex> lock(mutex_);
  const auto fitting = free_by_size_.lower_bound({size, 0});
  if (fitting == free_by_size_.end()) return nullptr;
  const auto [found, offset] = *fitting;
  RemoveFree(free_.find(offset));
  if (found > size) AddFree(offset + size, found - size);
  used_[offset] = {size};
  used_bytes_ += size;
  peak_ = std::max(peak_, used_bytes_);
  return data_ + offset;
}

bool SharedArena::Owns(const void* block) const {
  return static_cast<size_t>(static_cast<const std::byte*>(block) - data_) < capacity_;
}

void SharedArena::Free(void* block) {
  if (forked_) return;
  std::lock_guard<std::mutex> lock(mutex_);
  const auto used = used_.find(static_cast<size_t>(static_cast<std::byte*>(block) - data_));
  if (used->second.forked) return;
  size_t offset = used->first, bytes = used->second.bytes;
  used_.erase(used);
  used_bytes_ -= bytes;
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && next->first == offset + bytes) {
    bytes += next->second;
    RemoveFree(next++);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      offset = before->first;
      bytes += before->second;
      RemoveFree(before);
    }
  }
  AddFree(offset, bytes);
  NoteTime();
}

void SharedArena::AddFree(size_t offset, size_t bytes) {
  free_[offset] = bytes;
  free_by_size_.insert({bytes, offset});
}

void SharedArena::RemoveFree(std::map<size_t, size_t>::iterator range) {
  free_by_size_.erase({range->second, range->first});
  free_.erase(range);
}

void SharedArena::NoteTime() {
  const double now = seconds_();
  if (now - period_begin_ < kKeptSeconds) return;
  GiveBack(std::max(peak_, peak_before_));
  peak_before_ = peak_;
  peak_ = used_bytes_;
  period_begin_ = now;
}

void SharedArena::GiveBack(size_t above) {
  size_t resident = resident_bytes();
  for (auto range = free_by_size_.rbegin(); range != free_by_size_.rend(); ++range) {
    if (resident < above + kLeastGivenBack || range->first < kLeastGivenBack) return;
    const auto [bytes, offset] = *range;
    if (fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                  static_cast<off_t>(bytes)) != 0) {
      return;
    }
    resident = resident_bytes();
  }
}

size_t SharedArena::resident_bytes() const {
  struct stat found = {};
  return fstat(file_, &found) == 0 ? static_cast<size_t>(found.st_blocks) * 512 : 0;
}

}  // namespace smddp::ops
