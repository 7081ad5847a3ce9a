#include "kernels.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "cuda/kernels/jobs.h"
#include "device/device.h"
#include "memory.h"
#include "on_host.h"
#include "settings.h"

namespace smddp::fake {
namespace {

// A launch; any numbers would do.
constexpr uint32_t kBlocks = 3, kThreads = 8;

void RunAll(const std::vector<MoveJob>& jobs) {
  for (const MoveJob& job : jobs) RunOnHost(job, kBlocks, kThreads);
}

// Memory that work uses, as it reaches it.
class Held {
 public:
  explicit Held(int device, const char* call) : device_(device), call_(call) {}
  void* Hold(const void* memory, size_t bytes) {
    if (memory == nullptr && bytes == 0) return nullptr;
    spans_->push_back(TouchByKernel(device_, memory, bytes, call_));
    return spans_->back().data();
  }
  // `run`, with all that is held so far.
  template <class Run>
  Work Until(Run run) const {
    return [spans = spans_, run] { run(); };
  }

 private:
  const int device_;
  const char* const call_;
  const std::shared_ptr<std::vector<Span>> spans_ = std::make_shared<std::vector<Span>>();
};

// The part of a view that a range covers, with memory as the work reaches it.
FusedView LocalView(const FusedView& view, Range range, bool inputs, Held& held) {
  if (range.begin < 0 || range.end > view.elements()) Fatal("Pack or Unpack of a range that leaves its view.");
  const int64_t size = SizeOf(view.dtype());
  std::vector<Piece> pieces;
  for (size_t i = 0; i < view.pieces().size(); ++i) {
    const int64_t begin = std::max(range.begin, view.starts()[i]), end = std::min(range.end, view.starts()[i + 1]);
    if (begin >= end) continue;
    const Piece& piece = view.pieces()[i];
    const void* const memory = inputs ? piece.input : piece.output;
    Piece part;
    part.elements = end - begin;
    if (memory != nullptr) {
      part.input = part.output =
          held.Hold(static_cast<const char*>(memory) + (begin - view.starts()[i]) * size, part.elements * size);
    } else if (inputs) {
      Fatal("Pack got a piece without input.");
    }
    pieces.push_back(part);
  }
  return FusedView(view.dtype(), view.wire(), pieces, view.before(), view.after(), view.compute());
}

}  // namespace

Result<Work> PackWork(int device, const FusedView& view, Range range, void* into) {
  Held held(device, "Pack");
  const FusedView local = LocalView(view, range, true, held);
  void* const target = held.Hold(into, local.elements() * SizeOf(view.wire()));
  SMDDP_ASSIGN_OR_RETURN(const std::vector<MoveJob> jobs, PlanPack(local, {0, local.elements()}, target));
  return held.Until([jobs] { RunAll(jobs); });
}

Result<Work> UnpackWork(int device, const FusedView& view, Range range, const void* from) {
  Held held(device, "Unpack");
  const FusedView local = LocalView(view, range, false, held);
  const void* const source = held.Hold(from, local.elements() * SizeOf(view.wire()));
  SMDDP_ASSIGN_OR_RETURN(const std::vector<MoveJob> jobs, PlanUnpack(local, {0, local.elements()}, source));
  return held.Until([jobs] { RunAll(jobs); });
}

}  // namespace smddp::fake
