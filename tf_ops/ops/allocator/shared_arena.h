// Memory that other processes can map, for large blocks: one file in memory (memfd), reserved whole, of which pages
// exist when they are written first. Best fit; neighbours that are free become one.
//
// Threads: any.
// Memory:  pages of free blocks are kept while as much was in use at once in this period of kKeptSeconds or the one
//          before. The rest goes back to the system when a block is freed.
// Forks:   a forked child keeps its parent's blocks, and gets no new ones. What the child writes does not reach the
//          parent. The parent never uses a block again that was in use at a fork and is freed later, so the child's
//          content is lost only where the parent writes into a block that it still uses (a variable's value).
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>
#include <utility>

namespace smddp::ops {

class SharedArena {
 public:
  static constexpr double kKeptSeconds = 5;
  static constexpr size_t kAlignment = 64;

  // Null where the system has no such file or no address space for it. `capacity` is limited by the limits of this
  // process (ulimit -f). `seconds`: a clock.
  static std::unique_ptr<SharedArena> Create(size_t capacity, double (*seconds)());
  ~SharedArena();

  // Aligned to kAlignment; null: no room.
  void* Allocate(size_t bytes);
  bool Owns(const void* block) const;
  // `block` is one that Allocate returned.
  void Free(void* block);

  std::byte* data() const { return data_; }
  size_t capacity() const { return capacity_; }
  int file() const { return file_; }
  // Of pages that exist.
  size_t resident_bytes() const;

 private:
  struct Block {
    size_t bytes;
    bool forked = false;  // a child may read it: it stays in use after Free
  };

  SharedArena(int file, std::byte* data, size_t capacity, double (*seconds)());
  // Around a fork, during which the mutex is held: blocks in use stay; the child's mapping becomes a private one.
  void BeforeFork();
  void AfterFork(bool in_child);
  static void RegisterForks();

  // The mutex is held.
  void AddFree(size_t offset, size_t bytes);
  void RemoveFree(std::map<size_t, size_t>::iterator range);
  void NoteTime();
  void GiveBack(size_t above);

  const int file_;
  std::byte* const data_;
  const size_t capacity_;
  double (*const seconds_)();
  bool forked_ = false;  // set in a child, which has one thread then

  mutable std::mutex mutex_;
  std::map<size_t, size_t> free_;                       // offset -> bytes
  std::set<std::pair<size_t, size_t>> free_by_size_;    // (bytes, offset)
  std::unordered_map<size_t, Block> used_;              // by offset
  size_t used_bytes_ = 0, peak_ = 0, peak_before_ = 0;  // most in use since period_begin_, and in the period before
  double period_begin_;
};

}  // namespace smddp::ops
