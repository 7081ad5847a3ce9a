// Many pieces of memory seen as one array: a fusion buffer without a copy of the data. Packing and unpacking also
// convert and scale, so every byte is read and written once.
#pragma once

#include <vector>

#include "compute/compute.h"
#include "core/buffer.h"
#include "core/slice.h"

namespace smddp {

struct Piece {
  const void* input = nullptr;  // null: zeros
  void* output = nullptr;       // may equal `input`; null: the result of this piece is not needed
  int64_t elements = 0;
};

// A range of a view inside one piece, with its memory.
struct PieceRange {
  Range range;
  const std::byte* input;  // null: zeros
  std::byte* output;       // null: not needed
};

// Threads:   one at a time.
// Ownership: the memory of the pieces is the caller's and outlives the view.
class FusedView {
 public:
  // Elements are `dtype` in memory and `wire` when packed. `before` applies when packing, `after` when unpacking.
  // `parting`: other than kWhole for the layout of collectives/node/parts.h, in chunks of `chunk_elements`.
  FusedView(DType dtype, DType wire, const std::vector<Piece>& pieces, Scaling before, Scaling after,
            const Compute& compute, Parting parting = {}, int64_t chunk_elements = 0);

  int64_t elements() const { return starts_.back(); }
  // The start of each piece that is not empty, and the end of the last one.
  const std::vector<int64_t>& starts() const { return starts_; }
  // The pieces that are not empty, in order.
  const std::vector<Piece>& pieces() const { return pieces_; }
  DType dtype() const { return dtype_; }
  DType wire() const { return wire_; }
  const Scaling& before() const { return before_; }
  const Scaling& after() const { return after_; }
  const Compute& compute() const { return compute_; }
  const Parting& parting() const { return parting_; }
  int64_t chunk_elements() const { return chunk_elements_; }  // 0: any

  // Where the range can be read in the wire format without packing; null when it must be packed.
  const void* Direct(Range range) const;
  void Pack(Range range, void* into) const;
  // `finished`: `from` is what another rank has unpacked: it is copied as it is.
  void Unpack(Range range, const void* from, bool finished = false) const;
  // The range, cut where pieces end.
  std::vector<PieceRange> PieceRanges(Range range) const;
  // Are packed elements the same as those of the inputs? Is an unpacked array as long as a packed one?
  bool inputs_are_packed() const { return dtype_ == wire_ && before_.identity(); }
  bool outputs_are_packed() const { return dtype_ == wire_; }
  // Unpacks in place, where outputs_are_packed().
  void Finish(void* sum, int64_t elements) const;

 private:
  // Calls visit(piece, first element inside the piece, elements, first element inside the range).
  template <class Visit>
  void ForEach(Range range, Visit visit) const;

  const DType dtype_, wire_;
  const Scaling before_, after_;
  const Compute& compute_;
  const Parting parting_;
  const int64_t chunk_elements_;
  std::vector<Piece> pieces_;    // without empty ones
  std::vector<int64_t> starts_;  // pieces_.size() + 1 offsets
};

}  // namespace smddp
