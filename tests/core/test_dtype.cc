#include <string>

#include "core/dtype.h"
#include "native/testing.h"

namespace smddp {
namespace {

struct Row {
  DType dtype;
  int number;
  const char* name;
  size_t size;
  bool floating, half, reducible;
};

// The numbers travel, and Python has them too.
const Row kRows[] = {
    {DType::kUInt8, 0, "uint8", 1, false, false, true},
    {DType::kInt8, 1, "int8", 1, false, false, true},
    {DType::kInt32, 2, "int32", 4, false, false, true},
    {DType::kInt64, 3, "int64", 8, false, false, true},
    {DType::kFloat16, 4, "float16", 2, true, true, true},
    {DType::kBFloat16, 5, "bfloat16", 2, true, true, true},
    {DType::kFloat32, 6, "float32", 4, true, false, true},
    {DType::kFloat64, 7, "float64", 8, true, false, true},
    {DType::kBool, 8, "bool", 1, false, false, true},
    {DType::kInt16, 9, "int16", 2, false, false, true},
    {DType::kUInt16, 10, "uint16", 2, false, false, true},
    {DType::kUInt32, 11, "uint32", 4, false, false, false},
    {DType::kUInt64, 12, "uint64", 8, false, false, false},
    {DType::kComplex64, 13, "complex64", 8, false, false, false},
    {DType::kComplex128, 14, "complex128", 16, false, false, false},
};

TEST_CASE("facts of every dtype") {
  CHECK(std::size(kRows) == kDTypeCount);
  for (const Row& row : kRows) {
    CAPTURE(row.name);
    CHECK(static_cast<int>(row.dtype) == row.number);
    CHECK(std::string(NameOf(row.dtype)) == row.name);
    CHECK(SizeOf(row.dtype) == row.size);
    CHECK(IsFloating(row.dtype) == row.floating);
    CHECK(IsHalf(row.dtype) == row.half);
    CHECK(IsReducible(row.dtype) == row.reducible);
    CHECK(Value(DTypeFromName(row.name)) == row.dtype);
  }
}

TEST_CASE("an unknown dtype is refused with the names that there are") {
  for (const char* name : {"float33", "", "Float32", "float32 "}) {
    const Status status = DTypeFromName(name).status();
    CHECK(status.reason() == Reason::kBadArgument);
    CHECK(Begins(status.message(), "Expected a dtype of: uint8, int8, "));
    CHECK(Has(status.message(), std::string("complex128. Received: ") + name + "."));
  }
}

TEST_CASE("operators have Horovod's numbers") {
  const char* names[] = {"Average", "Sum", "Adasum", "Min", "Max", "Product"};
  for (int number = 0; number < 6; ++number) CHECK(std::string(NameOf(static_cast<ReduceOp>(number))) == names[number]);
  CHECK(std::string(NameOf(static_cast<ReduceOp>(6))) == "unknown");
}

}  // namespace
}  // namespace smddp
