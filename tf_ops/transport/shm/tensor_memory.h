// The memory in which a rank's framework keeps its tensors, and its mapping in the other ranks of the node. Its owner
// is the framework's allocator (tf_ops/ops/allocator); it lives as long as the process, and never shrinks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/buffer.h"
#include "core/status.h"
#include "core/wire.h"

namespace smddp {

struct TensorMemory {
  BufferView memory;  // empty: tensors lie elsewhere
  int file = -1;      // a memfd with the seal F_SEAL_SHRINK
};

// By which other processes of the host, of the same user, find it.
struct TensorMemoryAddress {
  int64_t bytes = 0, process = 0, file = 0, device = 0, inode = 0;

  SMDDP_FIELDS(bytes, process, file, device, inode);
};
TensorMemoryAddress AddressOf(const TensorMemory& mine);

// Another rank's tensors, to be read as long as the pointer lives. An error says why this process cannot map them.
Result<std::shared_ptr<std::byte>> MapTensors(const TensorMemoryAddress& address);

}  // namespace smddp
