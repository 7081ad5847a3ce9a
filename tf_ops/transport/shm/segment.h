// A segment of POSIX shared memory: created by its owner, opened by the other ranks of the node, and unlinked as soon
// as all have opened it, so that nothing remains however the processes end.
//
// The owner holds a record lock on the file as long as it lives. The kernel releases the lock with the process,
// whatever ends it. So other ranks see a death at once, and a name that remains after a crash is recognised
// (RemoveStale).
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "core/status.h"

namespace smddp {

class Segment {
 public:
  // Zeroed memory under a new name (owner's user only, 0600). An error names the size and what to change.
  static Result<std::unique_ptr<Segment>> Create(size_t bytes);
  static Result<std::unique_ptr<Segment>> Open(const std::string& name, size_t bytes);
  // Ordinary memory, for ranks that are threads of one process and for nodes with one rank.
  static Result<std::unique_ptr<Segment>> Private(size_t bytes);
  // Removes the names that jobs of this user left when they were killed during start-up.
  static void RemoveStale();

  Segment() = default;
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;
  ~Segment();

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  const std::string& name() const { return name_; }
  void Unlink();  // the memory remains; the name is removed
  // For an opened segment: false once the process that created it has ended or closed it. Always true for others.
  bool OwnerLives() const;

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  std::string name_;
  int file_ = -1;  // the owner's: closing it releases the lock
  bool mine_ = true, linked_ = false;
};

}  // namespace smddp
