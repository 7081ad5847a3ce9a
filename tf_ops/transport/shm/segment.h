// A piece of POSIX shared memory: made by its owner, opened by the other ranks of the node, unlinked as soon as all
// have it, so that nothing is left behind however the processes end.
//
// The owner holds a record lock on the file as long as it lives. The kernel drops the lock with the process, whatever
// ends it, so that others see a death at once, and a name that was left behind is known for one (RemoveStale).
#pragma once

#include <cstddef>
#include <string>

#include "core/status.h"

namespace smddp {

class Segment {
 public:
  // Zeroed memory under a new name (owner's user only, 0600). An error names the size and what to change.
  static Result<Segment> Create(size_t bytes);
  static Result<Segment> Open(const std::string& name, size_t bytes);
  // Ordinary memory, for ranks that are threads of one process and for nodes with one rank.
  static Result<Segment> Private(size_t bytes);
  // Removes the names that jobs of this user left behind which were killed while they started.
  static void RemoveStale();

  Segment() = default;
  Segment(Segment&& other) noexcept { *this = std::move(other); }
  Segment& operator=(Segment&& other) noexcept;
  ~Segment();

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  const std::string& name() const { return name_; }
  void Unlink();  // the memory stays; the name goes
  // Of an opened segment: false once the process that made it has ended or closed it. Always true of others.
  bool OwnerLives() const;

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  std::string name_;
  int file_ = -1;  // of the owner: closing it drops the lock
  bool mine_ = true, linked_ = false;
};

}  // namespace smddp
