#include "collectives/p2p/copy.h"

#include <algorithm>
#include <cstring>

namespace smddp {
namespace {

constexpr size_t kPieceBytes = 16 << 20;

class CopyTask : public Task {
 public:
  CopyTask(BufferView into, const void* from) : into_(into), from_(static_cast<const std::byte*>(from)) {}

  Result<Progress> Step() override {
    const size_t bytes = std::min(kPieceBytes, into_.size - copied_);
    std::memcpy(into_.data + copied_, from_ + copied_, bytes);
    copied_ += bytes;
    return copied_ == into_.size ? Progress::kDone : Progress::kMoved;
  }
  std::string Describe() const override { return "copying on this rank"; }

 private:
  const BufferView into_;
  const std::byte* const from_;
  size_t copied_ = 0;
};

}  // namespace

TaskPtr Copy(BufferView into, const void* from) {
  return into.size == 0 || into.data == from ? nullptr : std::make_unique<CopyTask>(into, from);
}

}  // namespace smddp
