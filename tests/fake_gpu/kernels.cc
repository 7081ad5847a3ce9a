#include "kernels.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <vector>

#include "compute/cpu/cpu_compute.h"
#include "device/device.h"
#include "memory.h"
#include "settings.h"

namespace smddp::fake {
namespace {

const Compute& OnHost() {
  static const TableCompute* const compute = new TableCompute(GenericKernels());
  return *compute;
}

// The part of a view that a range covers, with memory as the work reaches it.
struct LocalView {
  std::vector<Span> spans;
  std::unique_ptr<FusedView> view;
};

enum class Side { kInput, kOutput };

std::shared_ptr<LocalView> MakeLocal(int device, const FusedView& view, Range range, Side side, const char* call) {
  auto local = std::make_shared<LocalView>();
  const size_t size = SizeOf(view.dtype());
  std::vector<Piece> pieces;
  if (range.begin < 0 || range.end > view.elements()) Fatal(std::string(call) + " of a range that leaves its view.");
  for (size_t i = 0; i < view.pieces().size(); ++i) {
    const int64_t begin = std::max(range.begin, view.starts()[i]), end = std::min(range.end, view.starts()[i + 1]);
    if (begin >= end) continue;
    const Piece& piece = view.pieces()[i];
    Piece part;
    part.elements = end - begin;
    const int64_t offset = (begin - view.starts()[i]) * static_cast<int64_t>(size);
    const void* const memory = side == Side::kInput ? piece.input : piece.output;
    if (memory != nullptr) {
      local->spans.push_back(
          TouchByKernel(device, static_cast<const char*>(memory) + offset, part.elements * size, call));
      part.input = part.output = local->spans.back().data();
    } else if (side == Side::kInput) {
      Fatal("Pack got a piece without input.");
    }
    pieces.push_back(part);
  }
  local->view = std::make_unique<FusedView>(view.dtype(), view.wire(), pieces, view.before(), view.after(), OnHost());
  return local;
}

template <class T>
uint64_t CountIn(const char* data, int64_t elements, T exponent) {
  uint64_t count = 0;
  for (int64_t i = 0; i < elements; ++i) {
    T bits;
    std::copy_n(data + i * sizeof(T), sizeof(T), reinterpret_cast<char*>(&bits));
    count += (bits & exponent) == exponent;
  }
  return count;
}

uint64_t NonFinite(const char* data, int64_t elements, DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return CountIn<uint16_t>(data, elements, 0x7C00);
    case DType::kBFloat16:
      return CountIn<uint16_t>(data, elements, 0x7F80);
    case DType::kFloat32:
      return CountIn<uint32_t>(data, elements, 0x7F800000);
    case DType::kFloat64:
      return CountIn<uint64_t>(data, elements, 0x7FF0000000000000);
    default:
      return 0;
  }
}

// The counter may be counted by several streams.
void Count(const std::shared_ptr<Span>& counter, const char* data, int64_t elements, DType dtype) {
  if (counter == nullptr) return;
  __atomic_fetch_add(reinterpret_cast<uint64_t*>(counter->data()), NonFinite(data, elements, dtype), __ATOMIC_RELAXED);
}

std::shared_ptr<Span> Counter(int device, uint64_t* counter, const char* call) {
  return counter == nullptr ? nullptr : std::make_shared<Span>(TouchByKernel(device, counter, sizeof(uint64_t), call));
}

}  // namespace

std::function<void()> PackWork(int device, const FusedView& view, Range range, void* into, uint64_t* non_finite) {
  const std::shared_ptr<LocalView> local = MakeLocal(device, view, range, Side::kInput, "Pack");
  const int64_t elements = local->view->elements();
  const auto target = std::make_shared<Span>(TouchByKernel(device, into, elements * SizeOf(view.wire()), "Pack"));
  const std::shared_ptr<Span> counter = Counter(device, non_finite, "Pack");
  return [=] {
    local->view->Pack({0, elements}, target->data());
    Count(counter, target->data(), elements, local->view->wire());
  };
}

std::function<void()> UnpackWork(int device, const FusedView& view, Range range, const void* from) {
  const std::shared_ptr<LocalView> local = MakeLocal(device, view, range, Side::kOutput, "Unpack");
  const int64_t elements = local->view->elements();
  const auto source = std::make_shared<Span>(TouchByKernel(device, from, elements * SizeOf(view.wire()), "Unpack"));
  return [=] { local->view->Unpack({0, elements}, source->data()); };
}

std::function<void()> SumWork(int device, void* into, const void* const* sources, int count, int64_t elements,
                              DType dtype, uint64_t* non_finite) {
  if (count < 1 || count > Device::kMostSources) Fatal("Sum of " + std::to_string(count) + " sources.");
  if (!IsFloating(dtype)) Fatal(std::string("Sum of ") + NameOf(dtype) + ".");
  const auto spans = std::make_shared<std::vector<Span>>();
  const auto target = std::make_shared<Span>(TouchByKernel(device, into, elements * SizeOf(dtype), "Sum"));
  for (int i = 0; i < count; ++i) {
    spans->push_back(TouchByKernel(device, sources[i], elements * SizeOf(dtype), "Sum"));
  }
  const std::shared_ptr<Span> counter = Counter(device, non_finite, "Sum");
  return [=] {
    // As on a GPU, `into` is one of the sources by its address there, wherever it was imported.
    std::vector<const void*> data;
    for (const Span& span : *spans) data.push_back(span.data());
    OnHost().Reduce(target->data(), data.data(), count, elements, dtype, ReduceOp::kSum);
    Count(counter, target->data(), elements, dtype);
  };
}

}  // namespace smddp::fake
