#include "runtime/requests/inline_data.h"

#include <algorithm>
#include <cstring>

#include "core/shape.h"

namespace smddp {
namespace {

// Each run of equal dtypes is aligned to its elements, as arithmetic requires (compute/compute.h). The strings
// themselves are aligned to 8 bytes.
size_t AlignedFor(DType wire, size_t at) { return (at + SizeOf(wire) - 1) / SizeOf(wire) * SizeOf(wire); }

// Calls visit(view, place of its first byte) for each view; returns the number of bytes of all.
template <class Visit>
size_t ForEachPlace(const FusedViews& views, Visit visit) {
  size_t at = 0;
  for (const auto& view : views) {
    at = AlignedFor(view->wire(), at);
    visit(*view, at);
    at += static_cast<size_t>(view->elements()) * SizeOf(view->wire());
  }
  return at;
}

size_t PackedBytes(const FusedViews& views) {
  return ForEachPlace(views, [](const FusedView&, size_t) {});
}

Status WrongLength(const std::string& what, size_t expected, size_t received) {
  return OtherVersion(what, ": expected ", expected, " bytes, received ", received);
}

}  // namespace

bool FitsInMessage(const FusedViews& views, ReduceOp op) {
  if (op == ReduceOp::kAdasum) return false;
  const int64_t bytes = static_cast<int64_t>(PackedBytes(views));
  const auto reducible = [](const auto& view) { return IsReducible(view->wire()); };
  return bytes > 0 && bytes <= kMaxInlineBytes && std::all_of(views.begin(), views.end(), reducible);
}

std::string PackAll(const FusedViews& views) {
  std::string bytes(PackedBytes(views), '\0');
  ForEachPlace(views, [&](const FusedView& view, size_t at) { view.Pack({0, view.elements()}, bytes.data() + at); });
  return bytes;
}

Status UnpackAll(const FusedViews& views, const std::string& bytes) {
  const size_t expected = PackedBytes(views);
  if (bytes.size() != expected) return WrongLength("The result of a small reduction", expected, bytes.size());
  ForEachPlace(views, [&](const FusedView& view, size_t at) { view.Unpack({0, view.elements()}, bytes.data() + at); });
  return Status::Ok();
}

Result<std::string> ReduceInline(const std::map<int, Announcement>& by_rank, const Compute& compute) {
  const Announcement& first = by_rank.begin()->second;
  size_t expected = 0;
  for (const TensorSpec& tensor : first.tensors) {
    const DType wire = Narrowed(tensor.dtype, first.wire_dtype);
    expected = AlignedFor(wire, expected) + static_cast<size_t>(tensor.elements()) * SizeOf(wire);
    if (expected > kMaxInlineBytes) return WrongLength("'" + first.name + "'", kMaxInlineBytes, expected);
  }
  for (const auto& [rank, announcement] : by_rank) {
    if (announcement.data.size() == expected) continue;
    return WrongLength("'" + first.name + "' of rank " + std::to_string(rank), expected, announcement.data.size());
  }
  std::string result(expected, '\0');
  const ReduceOp op = first.op == ReduceOp::kAverage ? ReduceOp::kSum : first.op;  // the ranks divide when unpacking
  size_t at = 0;
  for (const TensorSpec& tensor : first.tensors) {
    const DType wire = Narrowed(tensor.dtype, first.wire_dtype);
    at = AlignedFor(wire, at);
    std::vector<const void*> sources;
    for (const auto& [rank, announcement] : by_rank) sources.push_back(announcement.data.data() + at);
    compute.Reduce(result.data() + at, sources.data(), static_cast<int>(sources.size()), tensor.elements(), wire, op);
    at += static_cast<size_t>(tensor.elements()) * SizeOf(wire);
  }
  return result;
}

std::string PackToGather(const std::vector<TensorRef>& tensors) {
  size_t bytes = 0;
  for (const TensorRef& tensor : tensors) {
    if (bytes + tensor.bytes() > static_cast<size_t>(kMaxInlineBytes)) return "";
    bytes += tensor.bytes();
  }
  std::string data;
  for (const TensorRef& tensor : tensors) data.append(static_cast<const char*>(tensor.input), tensor.bytes());
  return data;
}

std::string GatherInline(const std::map<int, Announcement>& by_rank) {
  std::string all;
  for (const auto& [rank, request] : by_rank) {
    int64_t bytes = 0;
    for (const TensorSpec& tensor : request.tensors) {
      const int64_t most = kMaxInlineBytes + 1;
      bytes += std::min(tensor.elements(), most) * static_cast<int64_t>(SizeOf(tensor.dtype));
    }
    if (static_cast<int64_t>(request.data.size()) != bytes) return "";
    all += request.data;
    if (static_cast<int64_t>(all.size()) > kMaxGatheredBytes) return "";
  }
  return all;
}

Status UnpackGathered(const std::string& bytes, const std::vector<std::vector<BufferView>>& blocks) {
  size_t expected = 0;
  for (const auto& of_rank : blocks) {
    for (const BufferView& block : of_rank) expected += block.size;
  }
  if (bytes.size() != expected) return WrongLength("The result of a small allgather", expected, bytes.size());
  const char* at = bytes.data();
  for (const auto& of_rank : blocks) {
    for (const BufferView& block : of_rank) {
      if (block.size > 0) std::memcpy(block.data, at, block.size);
      at += block.size;
    }
  }
  return Status::Ok();
}

}  // namespace smddp
