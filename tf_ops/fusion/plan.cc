#include "fusion/plan.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "core/hash.h"

namespace smddp {
namespace {

// Of tensors that are quantised: of others the bytes matter little, and one scale would fit them badly.
constexpr int64_t kLeastQuantised = (64 << 10) / 4;

std::string Exact(double value) {
  char text[40];
  std::snprintf(text, sizeof(text), "%.17g", value);
  return text;
}

int64_t WireBytes(const TensorSpec& tensor, const WireDType& wire) {
  return tensor.elements() * static_cast<int64_t>(SizeOf(Narrowed(tensor.dtype, wire)));
}

}  // namespace

std::string NameOf(const PlanSpec& spec, int index) {
  return index < static_cast<int>(spec.names.size()) ? spec.names[index] : "";
}

std::string DescribeTensor(const PlanSpec& spec, int index) {
  const TensorSpec& tensor = spec.tensors[index];
  return "tensor " + std::to_string(index) + ": " + NameOf(tensor.dtype) + " " + ShapeText(tensor.shape);
}

Result<WireDType> WireDTypeFromName(const std::string& name) {
  if (name.empty()) return WireDType();
  if (name == "auto") return WireDType(kWireByLink);
  SMDDP_ASSIGN_OR_RETURN(const DType dtype, DTypeFromName(name));
  if (IsFloating(dtype) || dtype == DType::kInt8) return WireDType(dtype);
  return Status(Reason::kBadArgument,
                "A wire dtype must be auto, int8, float16, bfloat16, float32 or float64, or \"\" for none. Received: ",
                name, ".");
}

const char* NameOf(const WireDType& wire) { return wire == kWireByLink ? "auto" : wire ? NameOf(*wire) : "as given"; }

WireDType WireFor(WireDType wire, double bytes_per_s) {
  if (wire != kWireByLink) return wire;
  constexpr double kGbit = 1e9 / 8;
  if (bytes_per_s < 3 * kGbit) return DType::kInt8;
  if (bytes_per_s < 25 * kGbit) return DType::kBFloat16;
  return std::nullopt;
}

DType Narrowed(DType dtype, const WireDType& wire) {
  if (wire == DType::kInt8) return dtype == DType::kFloat64 ? DType::kFloat32 : dtype;
  return wire && IsFloating(dtype) && SizeOf(*wire) < SizeOf(dtype) ? *wire : dtype;
}

bool Quantised(DType dtype, int64_t elements, const Arithmetic& arithmetic) {
  return arithmetic.wire_dtype == DType::kInt8 && Narrowed(dtype, DType::kInt8) == DType::kFloat32 &&
         (arithmetic.op == ReduceOp::kSum || arithmetic.op == ReduceOp::kAverage) && elements >= kLeastQuantised;
}

int64_t DefaultBucketBytes(int nodes) {
  constexpr int64_t kMin = 25 << 20;
  return kMin * std::clamp(nodes, 8, 64) / 8;
}

int64_t BucketBytesFor(const PlanSpec& spec, int nodes) {
  constexpr int64_t kMaxParts = 16;
  const int64_t parts = nodes > 1 ? kMaxParts : 4;
  int64_t bytes = 0;
  for (const TensorSpec& tensor : spec.tensors) bytes += WireBytes(tensor, spec.wire_dtype);
  const int64_t most = DefaultBucketBytes(nodes);
  return std::clamp(bytes / parts, most / kMaxParts, most);
}

std::vector<Bucket> PlanBuckets(const PlanSpec& spec, int64_t bucket_bytes, const std::vector<int>& order) {
  std::vector<Bucket> buckets;
  std::array<int, 2 * kDTypeCount> open;  // by dtype, then by dtype of quantised ones: the bucket that accepts more
  open.fill(-1);
  for (size_t i = 0; i < spec.tensors.size(); ++i) {
    const int index = order.empty() ? static_cast<int>(i) : order[i];
    const TensorSpec& tensor = spec.tensors[index];
    const bool quantised = Quantised(tensor.dtype, tensor.elements(), spec);
    int& at = open[static_cast<int>(tensor.dtype) + (quantised ? kDTypeCount : 0)];
    if (at < 0 || buckets[at].wire_bytes() + WireBytes(tensor, spec.wire_dtype) > bucket_bytes) {
      at = static_cast<int>(buckets.size());
      buckets.push_back({tensor.dtype, Narrowed(tensor.dtype, spec.wire_dtype), quantised, /*elements=*/0, {}});
    }
    Bucket& bucket = buckets[at];
    bucket.slots.push_back({index, bucket.elements, tensor.elements()});
    bucket.elements += tensor.elements();
  }
  return buckets;
}

bool SameGroups(const std::vector<Bucket>& a, const std::vector<Bucket>& b) {
  const auto tensors_of = [](const Bucket& bucket) {
    std::vector<int> tensors;
    for (const BucketSlot& slot : bucket.slots) tensors.push_back(slot.tensor);
    std::sort(tensors.begin(), tensors.end());
    return tensors;
  };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](const Bucket& left, const Bucket& right) { return tensors_of(left) == tensors_of(right); });
}

bool IsPermutation(const std::vector<int>& order, size_t tensors) {
  std::vector<bool> seen(tensors, false);
  for (const int index : order) {
    if (index < 0 || static_cast<size_t>(index) >= tensors || seen[index]) return false;
    seen[index] = true;
  }
  return order.size() == tensors;
}

std::vector<std::string> DescribePlan(const PlanSpec& spec) {
  std::vector<std::string> lines;
  lines.push_back("reducer " + spec.key);
  if (!spec.parting.whole()) {
    lines.push_back((spec.parting.mode == PartMode::kGather ? "gathers parts: " : "reduces to parts: ") +
                    std::to_string(spec.parting.parts));
  }
  lines.push_back(std::string("op ") + NameOf(spec.op));
  lines.push_back("prescale factor " + Exact(spec.prescale));
  lines.push_back("postscale factor " + Exact(spec.postscale));
  lines.push_back(std::string("wire dtype ") + NameOf(spec.wire_dtype));
  lines.push_back(std::to_string(spec.tensors.size()) + " tensors");
  for (size_t i = 0; i < spec.tensors.size(); ++i) lines.push_back(DescribeTensor(spec, static_cast<int>(i)));
  lines.insert(lines.end(), spec.notes.begin(), spec.notes.end());
  return lines;
}

std::string PlanDigest(const PlanSpec& spec) {
  uint64_t hash = kFnvStart;
  for (const std::string& line : DescribePlan(spec)) hash = Fnv1a("\n", Fnv1a(line, hash));
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(hash));
  return text;
}

std::string KeyAt(const PlanSpec& spec, int site) { return site == 0 ? spec.key : Concat(spec.key, "@", site + 1); }

std::string PlanName(const PlanSpec& spec, int site) {
  return "plan '" + KeyAt(spec, site) + "' (" + PlanDigest(spec) + ")";
}

}  // namespace smddp
