#include "core/dtype.h"

namespace smddp {
namespace {

struct DTypeRow {
  const char* name;
  size_t size;
  bool floating;
  bool reducible;
};

constexpr DTypeRow kRows[kDTypeCount] = {
    {"uint8", 1, false, true},   {"int8", 1, false, true},       {"int32", 4, false, true},
    {"int64", 8, false, true},   {"float16", 2, true, true},     {"bfloat16", 2, true, true},
    {"float32", 4, true, true},  {"float64", 8, true, true},     {"bool", 1, false, true},
    {"int16", 2, false, true},   {"uint16", 2, false, true},     {"uint32", 4, false, false},
    {"uint64", 8, false, false}, {"complex64", 8, false, false}, {"complex128", 16, false, false},
};

const DTypeRow& Row(DType dtype) { return kRows[static_cast<int>(dtype)]; }

}  // namespace

size_t SizeOf(DType dtype) { return Row(dtype).size; }
const char* NameOf(DType dtype) { return Row(dtype).name; }
bool IsHalf(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBFloat16; }

bool IsFloating(DType dtype) { return Row(dtype).floating; }
bool IsReducible(DType dtype) { return Row(dtype).reducible; }

Result<DType> DTypeFromName(const std::string& name) {
  std::string known;
  for (int i = 0; i < kDTypeCount; ++i) {
    if (name == kRows[i].name) return static_cast<DType>(i);
    known += std::string(i == 0 ? "" : ", ") + kRows[i].name;
  }
  return Status(Reason::kBadArgument, "Expected a dtype of: ", known, ". Received: ", name, ".");
}

const char* NameOf(ReduceOp op) {
  constexpr const char* kNames[] = {"Average", "Sum", "Adasum", "Min", "Max", "Product"};
  return op <= ReduceOp::kProduct ? kNames[static_cast<int>(op)] : "unknown";
}

}  // namespace smddp
