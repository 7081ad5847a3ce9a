// Memory for reductions to which this rank contributes zeros: an input, and no output. All of them share it, so it is
// as large as the largest tensor, not as all of them together. Exception: when results are checked
// (runtime/verify/verify.h), each has an output of its own.
//
// Threads: the engine's.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "runtime/api/session.h"

namespace smddp {

class ZeroMemory {
 public:
  explicit ZeroMemory(bool shared) : shared_(shared) {}
  // The caller holds `*keep` until the tensor has been reduced.
  Result<TensorRef> Tensor(DType dtype, std::vector<int64_t> shape, std::shared_ptr<void>* keep) {
    TensorRef tensor;
    tensor.dtype = dtype;
    tensor.shape = std::move(shape);
    const size_t bytes = std::max<size_t>(tensor.bytes(), 1);
    if (!shared_ || block_ == nullptr || block_->bytes < bytes) block_ = std::make_shared<Block>(bytes, !shared_);
    if (block_->zeros == nullptr || (!shared_ && block_->results == nullptr)) {
      block_.reset();
      return Status(Reason::kNoResources, "No memory for ", bytes,
                    " bytes of zeros, which this rank contributes after hvd.join.");
    }
    tensor.input = block_->zeros.get();
    tensor.output = block_->results.get();
    *keep = block_;
    return tensor;
  }

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  struct Block {
    Block(size_t size, bool with_results)
        : bytes(size), zeros(std::calloc(size, 1)), results(with_results ? std::malloc(size) : nullptr) {}
    const size_t bytes;
    const std::unique_ptr<void, Free> zeros, results;
  };
  const bool shared_;
  std::shared_ptr<Block> block_;  // earlier blocks are kept alive by their users
};

}  // namespace smddp
