// A piece of POSIX shared memory: made by its owner, opened by the other ranks of the node, unlinked as soon as all
// have it, so that nothing is left behind however the processes end.
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

  Segment() = default;
  Segment(Segment&& other) noexcept { *this = std::move(other); }
  Segment& operator=(Segment&& other) noexcept;
  ~Segment();

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  const std::string& name() const { return name_; }
  void Unlink();  // the memory stays; the name goes

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  std::string name_;
  bool linked_ = false;
};

}  // namespace smddp
