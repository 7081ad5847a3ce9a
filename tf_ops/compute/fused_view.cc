#include "compute/fused_view.h"

#include <algorithm>
#include <cstring>

namespace smddp {
namespace {

// Outputs of this size together that are no inputs are in no core's own cache, neither before nor after they are
// written.
constexpr int64_t kUncachedBytes = 4 << 20;

}  // namespace

FusedView::FusedView(DType dtype, DType wire, const std::vector<Piece>& pieces, Scaling before, Scaling after,
                     const Compute& compute, Parting parting, int64_t chunk_elements)
    : dtype_(dtype),
      wire_(wire),
      before_(before),
      after_(after),
      compute_(compute),
      parting_(parting),
      chunk_elements_(chunk_elements),
      starts_{0} {
  for (const Piece& piece : pieces) {
    if (piece.elements == 0) continue;
    pieces_.push_back(piece);
    starts_.push_back(starts_.back() + piece.elements);
  }
}

template <class Visit>
void FusedView::ForEach(Range range, Visit visit) const {
  size_t i = std::upper_bound(starts_.begin(), starts_.end(), range.begin) - starts_.begin() - 1;
  for (int64_t at = range.begin; at < range.end; ++i) {
    const int64_t end = std::min(range.end, starts_[i + 1]);
    visit(pieces_[i], at - starts_[i], end - at, at - range.begin);
    at = end;
  }
}

const void* FusedView::Direct(Range range) const {
  if (range.empty() || !inputs_are_packed()) return nullptr;
  const size_t i = std::upper_bound(starts_.begin(), starts_.end(), range.begin) - starts_.begin() - 1;
  const bool direct = range.end <= starts_[i + 1] && pieces_[i].input != nullptr;
  return direct ? ElementAt(pieces_[i].input, range.begin - starts_[i], dtype_) : nullptr;
}

void FusedView::Pack(Range range, void* into) const {
  ForEach(range, [&](const Piece& piece, int64_t first, int64_t count, int64_t offset) {
    if (piece.input == nullptr) {
      std::memset(ElementAt(into, offset, wire_), 0, static_cast<size_t>(count) * SizeOf(wire_));
      return;
    }
    compute_.Cast(ElementAt(into, offset, wire_), wire_, ElementAt(piece.input, first, dtype_), dtype_, count, before_);
  });
}

void FusedView::Unpack(Range range, const void* from, bool finished) const {
  const bool large = elements() * static_cast<int64_t>(SizeOf(dtype_)) >= kUncachedBytes;
  ForEach(range, [&](const Piece& piece, int64_t first, int64_t count, int64_t offset) {
    if (piece.output == nullptr) return;
    const auto cast = large && piece.output != piece.input ? &Compute::CastUncached : &Compute::Cast;
    (compute_.*cast)(ElementAt(piece.output, first, dtype_), dtype_, ElementAt(from, offset, wire_), wire_, count,
                     finished ? Scaling() : after_);
  });
}

std::vector<PieceRange> FusedView::PieceRanges(Range range) const {
  std::vector<PieceRange> ranges;
  ForEach(range, [&](const Piece& piece, int64_t first, int64_t count, int64_t offset) {
    const auto of = [&](auto* base) { return base != nullptr ? ElementAt(base, first, dtype_) : base; };
    const int64_t begin = range.begin + offset;
    ranges.push_back({{begin, begin + count},
                      static_cast<const std::byte*>(of(piece.input)),
                      static_cast<std::byte*>(of(piece.output))});
  });
  return ranges;
}

void FusedView::Finish(void* sum, int64_t elements) const {
  if (!after_.identity()) compute_.Cast(sum, dtype_, sum, dtype_, elements, after_);
}

}  // namespace smddp
