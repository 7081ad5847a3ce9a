#include "cuda/kernels/jobs.h"

#include <algorithm>

namespace smddp {
namespace {

Element ElementOf(DType dtype) {
  constexpr Element kFloating[] = {Element::kHalf, Element::kBFloat16, Element::kFloat, Element::kDouble};
  if (IsFloating(dtype)) return kFloating[static_cast<int>(dtype) - static_cast<int>(DType::kFloat16)];
  constexpr Element kOfBytes[] = {Element::kBytes1, Element::kBytes2, Element::kBytes4, Element::kBytes8};
  const size_t bytes = SizeOf(dtype);
  return kOfBytes[bytes == 1 ? 0 : bytes == 2 ? 1 : bytes == 4 ? 2 : 3];  // of 16 bytes: two
}

// How the elements of `dtype` are counted in a job.
int64_t UnitsPerElement(DType dtype) { return SizeOf(dtype) == 16 ? 2 : 1; }

struct Way {
  DType to, from;
  Scaling scaling;
  bool packs;
};

Status CheckWay(const Way& way) {
  if (IsFloating(way.to) && IsFloating(way.from)) return Status::Ok();
  if (way.to == way.from && (way.scaling.identity() || way.to == DType::kBool)) return Status::Ok();
  return Status(Reason::kBadArgument, "On a GPU tensors of dtype ", NameOf(way.from),
                " are copied only; they are converted and scaled in host memory. Requested: ", NameOf(way.to), ".");
}

MoveJob BeginJob(const Way& way, const void* packed) {
  MoveJob job;
  job.packed = const_cast<void*>(packed);
  job.scaled = IsFloating(way.to) && !way.scaling.identity();
  job.multiplier = way.scaling.factor / static_cast<double>(way.scaling.divisor);
  job.count = 0;
  job.to = ElementOf(way.to);
  job.from = ElementOf(way.from);
  job.packs = way.packs;
  job.starts[0] = 0;
  return job;
}

bool IsFull(const MoveJob& job) {
  return job.count == MoveJob::kMaxPieces || job.starts[job.count] == MoveJob::kMaxElements;
}

// Cuts a range into jobs.
std::vector<MoveJob> Cut(const FusedView& view, Range range, const Way& way, const void* packed) {
  const DType packed_dtype = way.packs ? way.to : way.from, piece_dtype = way.packs ? way.from : way.to;
  const int64_t units = UnitsPerElement(piece_dtype);
  std::vector<MoveJob> jobs;
  for (const PieceRange& piece : view.PieceRanges(range)) {
    void* const memory = way.packs ? const_cast<std::byte*>(piece.input) : piece.output;
    for (int64_t at = piece.range.begin; at < piece.range.end;) {
      if (jobs.empty() || IsFull(jobs.back())) {
        jobs.push_back(BeginJob(way, ElementAt(packed, at - range.begin, packed_dtype)));
      }
      MoveJob& job = jobs.back();
      const int64_t room = (MoveJob::kMaxElements - job.starts[job.count]) / units;
      const int64_t end = std::min(piece.range.end, at + room);
      job.pieces[job.count] = memory == nullptr ? nullptr : ElementAt(memory, at - piece.range.begin, piece_dtype);
      job.starts[job.count + 1] = job.starts[job.count] + static_cast<uint32_t>((end - at) * units);
      ++job.count;
      at = end;
    }
  }
  return jobs;
}

}  // namespace

Result<std::vector<MoveJob>> PlanPack(const FusedView& view, Range range, void* into) {
  const Way way{view.wire(), view.dtype(), view.before(), true};
  SMDDP_RETURN_IF_ERROR(CheckWay(way));
  return Cut(view, range, way, into);
}

Result<std::vector<MoveJob>> PlanUnpack(const FusedView& view, Range range, const void* from) {
  const Way way{view.dtype(), view.wire(), view.after(), false};
  SMDDP_RETURN_IF_ERROR(CheckWay(way));
  return Cut(view, range, way, from);
}

}  // namespace smddp
