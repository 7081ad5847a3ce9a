// Non-owning views of memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace smddp {

struct BufferView {
  std::byte* data = nullptr;
  size_t size = 0;  // bytes

  BufferView() = default;
  BufferView(void* data, size_t size) : data(static_cast<std::byte*>(data)), size(size) {}
  BufferView Slice(size_t offset, size_t length) const { return {data + offset, length}; }
};

// Half-open range of element positions.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
  bool empty() const { return end <= begin; }
};

}  // namespace smddp
