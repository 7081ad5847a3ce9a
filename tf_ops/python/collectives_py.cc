// Collectives of NumPy arrays: for objects and metrics, for benchmarks, and where there is no TensorFlow.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "python/bindings.h"
#include "python/waiter.h"
#include "runtime/session.h"

namespace nb = nanobind;

namespace smddp {
namespace {

// The dtype's name comes beside the array, because NumPy has no bfloat16 of its own: pass such arrays as uint16.
using Array = nb::ndarray<nb::c_contig, nb::device::cpu>;

TensorRef RefTo(const Array& array, const std::string& dtype_name) {
  TensorRef tensor;
  tensor.dtype = ValueOrThrow(DTypeFromName(dtype_name));
  if (array.itemsize() != SizeOf(tensor.dtype)) {
    const std::string message = "Expected an array with " + std::to_string(SizeOf(tensor.dtype)) +
                                " bytes per element for dtype " + dtype_name +
                                ". Received: " + std::to_string(array.itemsize()) + ".";
    throw nb::value_error(message.c_str());
  }
  for (size_t i = 0; i < array.ndim(); ++i) tensor.shape.push_back(array.shape(i));
  tensor.input = tensor.output = array.data();
  return tensor;
}

std::vector<TensorRef> RefsTo(const std::vector<Array>& arrays, const std::string& dtype) {
  std::vector<TensorRef> tensors;
  for (const Array& array : arrays) tensors.push_back(RefTo(array, dtype));
  return tensors;
}

void AllreduceArrays(const std::vector<Array>& arrays, const std::string& dtype, const std::string& name, int op,
                     double prescale, double postscale, const std::string& wire_dtype, int process_set) {
  const WireDType wire = ValueOrThrow(WireDTypeFromName(wire_dtype));
  Waiter waiter;
  SessionOrThrow(process_set)
      ->Allreduce({name, RefsTo(arrays, dtype), static_cast<ReduceOp>(op), prescale, postscale, wire},
                  waiter.callback());
  ThrowIfError(waiter.Wait());
}

// In place: a gradient of a plan (register_plan).
void ReducePlannedArray(int plan, int index, const Array& array, const std::string& dtype, int process_set) {
  Waiter waiter;
  SessionOrThrow(process_set)->ReducePlanned({plan, index}, RefTo(array, dtype), waiter.callback());
  ThrowIfError(waiter.Wait());
}

void BroadcastArrays(const std::vector<Array>& arrays, const std::string& dtype, int root, const std::string& name,
                     int process_set) {
  Waiter waiter;
  SessionOrThrow(process_set)->Broadcast({name, RefsTo(arrays, dtype), root}, waiter.callback());
  ThrowIfError(waiter.Wait());
}

// The rows that come from each rank, as bytes.
class RowsFromEach {
 public:
  explicit RowsFromEach(size_t row_bytes) : row_bytes_(row_bytes) {}

  Result<void*> Allocate(const std::vector<int64_t>& rows) {
    rows_ = rows;
    total_ = std::accumulate(rows.begin(), rows.end(), int64_t{0}) * row_bytes_;
    bytes_.reset(new (std::nothrow) uint8_t[total_ == 0 ? 1 : total_]);
    if (bytes_ != nullptr) return bytes_.get();
    return Status(Code::kResourceExhausted, "No memory for a result of " + std::to_string(total_) + " bytes.");
  }
  nb::tuple Take() {
    uint8_t* data = bytes_.release();
    nb::capsule owner(data, [](void* memory) noexcept { delete[] static_cast<uint8_t*>(memory); });
    return nb::make_tuple(nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>>(data, {total_}, owner), rows_);
  }

 private:
  const size_t row_bytes_;
  std::vector<int64_t> rows_;
  std::unique_ptr<uint8_t[]> bytes_;
  size_t total_ = 0;
};

// Returns everybody's bytes, one after another, and the first dimension of every rank.
nb::tuple AllgatherArray(const Array& array, const std::string& dtype, const std::string& name, int process_set) {
  Waiter waiter;
  AllgatherRequest request;
  request.name = name;
  request.tensors = {RefTo(array, dtype)};
  RowsFromEach result(request.tensors[0].row_bytes());
  request.allocate = [&](int, const std::vector<int64_t>& dim0) { return result.Allocate(dim0); };
  SessionOrThrow(process_set)->Allgather(std::move(request), waiter.callback());
  ThrowIfError(waiter.Wait());
  return result.Take();
}

// Returns the bytes from every rank, one after another, and how many rows come from each. Without splits as many rows
// go to each rank.
nb::tuple AlltoallArray(const Array& array, const std::string& dtype, const std::optional<std::vector<int64_t>>& splits,
                        const std::string& name, int process_set) {
  Waiter waiter;
  AlltoallRequest request;
  request.name = name;
  request.tensor = RefTo(array, dtype);
  request.even_split = !splits;
  if (splits) request.splits = *splits;
  RowsFromEach result(request.tensor.row_bytes());
  request.allocate = [&](const std::vector<int64_t>& received) { return result.Allocate(received); };
  SessionOrThrow(process_set)->Alltoall(std::move(request), waiter.callback());
  ThrowIfError(waiter.Wait());
  return result.Take();
}

void BarrierNamed(const std::string& name, int process_set) {
  Waiter waiter;
  SessionOrThrow(process_set)->Barrier({name}, waiter.callback());
  ThrowIfError(waiter.Wait());
}

int Join(int process_set) {
  Waiter waiter;
  int last = 0;
  SessionOrThrow(process_set)->Join(&last, waiter.callback());
  ThrowIfError(waiter.Wait());
  return last;
}

}  // namespace

void BindCollectives(nb::module_& m) {
  m.def("allreduce", &AllreduceArrays, nb::arg("arrays"), nb::arg("dtype"), nb::arg("name"), nb::arg("op"),
        nb::arg("prescale") = 1.0, nb::arg("postscale") = 1.0, nb::arg("wire_dtype") = "", nb::arg("process_set") = 0);
  m.def("reduce_planned", &ReducePlannedArray, nb::arg("plan"), nb::arg("index"), nb::arg("array"), nb::arg("dtype"),
        nb::arg("process_set") = 0);
  m.def("broadcast", &BroadcastArrays, nb::arg("arrays"), nb::arg("dtype"), nb::arg("root"), nb::arg("name"),
        nb::arg("process_set") = 0);
  m.def("allgather", &AllgatherArray, nb::arg("array"), nb::arg("dtype"), nb::arg("name"), nb::arg("process_set") = 0);
  m.def("alltoall", &AlltoallArray, nb::arg("array"), nb::arg("dtype"), nb::arg("splits").none(), nb::arg("name"),
        nb::arg("process_set") = 0);
  m.def("barrier", &BarrierNamed, nb::arg("name"), nb::arg("process_set") = 0);
  m.def("join", &Join, nb::arg("process_set") = 0);
}

}  // namespace smddp
