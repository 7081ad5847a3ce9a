// NumPy arrays as the engine's tensors.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <memory>
#include <new>
#include <numeric>
#include <string>
#include <vector>

#include "python/errors.h"
#include "runtime/api/session.h"

namespace smddp {

// The dtype's name is passed beside the array, because NumPy has no bfloat16: such arrays are passed as uint16.
using Array = nanobind::ndarray<nanobind::c_contig, nanobind::device::cpu>;

// In place. ValueError when the array's element size does not match the name.
inline TensorRef RefTo(const Array& array, const std::string& dtype_name) {
  TensorRef tensor;
  tensor.dtype = ValueOrThrow(DTypeFromName(dtype_name));
  if (array.itemsize() != SizeOf(tensor.dtype)) {
    ThrowIfError(Status(Reason::kBadArgument, "Expected an array with ", SizeOf(tensor.dtype),
                        " bytes per element for dtype ", dtype_name, ". Received: ", array.itemsize(), "."));
  }
  for (size_t i = 0; i < array.ndim(); ++i) tensor.shape.push_back(array.shape(i));
  tensor.input = tensor.output = array.data();
  return tensor;
}

inline std::vector<TensorRef> RefsTo(const std::vector<Array>& arrays, const std::string& dtype) {
  std::vector<TensorRef> tensors;
  for (const Array& array : arrays) tensors.push_back(RefTo(array, dtype));
  return tensors;
}

// The rows received from each rank, as bytes. Allocate runs on the engine thread, Take when the request has ended.
class RowsFromEach {
 public:
  explicit RowsFromEach(size_t row_bytes) : row_bytes_(row_bytes) {}

  Result<void*> Allocate(const std::vector<int64_t>& rows) {
    rows_ = rows;
    total_ = std::accumulate(rows.begin(), rows.end(), int64_t{0}) * row_bytes_;
    bytes_.reset(new (std::nothrow) uint8_t[total_ == 0 ? 1 : total_]);
    if (bytes_ != nullptr) return bytes_.get();
    return Status(Reason::kNoResources, "No memory for a result of ", total_, " bytes.");
  }
  // (bytes, rows of each rank)
  nanobind::tuple Take() {
    uint8_t* data = bytes_.release();
    nanobind::capsule owner(data, [](void* memory) noexcept { delete[] static_cast<uint8_t*>(memory); });
    using Bytes = nanobind::ndarray<nanobind::numpy, uint8_t, nanobind::ndim<1>>;
    return nanobind::make_tuple(Bytes(data, {total_}, owner), rows_);
  }

 private:
  const size_t row_bytes_;
  std::vector<int64_t> rows_;
  std::unique_ptr<uint8_t[]> bytes_;
  size_t total_ = 0;
};

}  // namespace smddp
