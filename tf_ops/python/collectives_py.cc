// Collectives of NumPy arrays: for objects and metrics, for benchmarks, and where there is no TensorFlow.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <numeric>
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
                     double prescale, double postscale, const std::string& wire_dtype) {
  const WireDType wire = ValueOrThrow(WireDTypeFromName(wire_dtype));
  Waiter waiter;
  SessionOrThrow()->Allreduce({name, RefsTo(arrays, dtype), static_cast<ReduceOp>(op), prescale, postscale, wire},
                              waiter.callback());
  ThrowIfError(waiter.Wait());
}

void BroadcastArrays(const std::vector<Array>& arrays, const std::string& dtype, int root, const std::string& name) {
  Waiter waiter;
  SessionOrThrow()->Broadcast({name, RefsTo(arrays, dtype), root}, waiter.callback());
  ThrowIfError(waiter.Wait());
}

// Returns everybody's bytes, one after another, and the first dimension of every rank.
nb::tuple AllgatherArray(const Array& array, const std::string& dtype, const std::string& name) {
  Waiter waiter;
  AllgatherRequest request;
  request.name = name;
  request.tensor = RefTo(array, dtype);
  std::vector<int64_t> rows;
  std::unique_ptr<uint8_t[]> bytes;
  size_t total = 0;
  const size_t row_bytes = request.tensor.row_bytes();
  request.allocate = [&](const std::vector<int64_t>& dim0) -> Result<void*> {
    rows = dim0;
    total = std::accumulate(dim0.begin(), dim0.end(), int64_t{0}) * row_bytes;
    bytes.reset(new (std::nothrow) uint8_t[total == 0 ? 1 : total]);
    if (bytes == nullptr) {
      return Status(Code::kResourceExhausted, "No memory for an allgather of " + std::to_string(total) + " bytes.");
    }
    return bytes.get();
  };
  SessionOrThrow()->Allgather(std::move(request), waiter.callback());
  ThrowIfError(waiter.Wait());
  uint8_t* data = bytes.release();
  nb::capsule owner(data, [](void* memory) noexcept { delete[] static_cast<uint8_t*>(memory); });
  return nb::make_tuple(nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>>(data, {total}, owner), rows);
}

void BarrierNamed(const std::string& name) {
  Waiter waiter;
  SessionOrThrow()->Barrier({name}, waiter.callback());
  ThrowIfError(waiter.Wait());
}

int Join() {
  Waiter waiter;
  int last = 0;
  SessionOrThrow()->Join(&last, waiter.callback());
  ThrowIfError(waiter.Wait());
  return last;
}

}  // namespace

void BindCollectives(nb::module_& m) {
  m.def("allreduce", &AllreduceArrays, nb::arg("arrays"), nb::arg("dtype"), nb::arg("name"), nb::arg("op"),
        nb::arg("prescale") = 1.0, nb::arg("postscale") = 1.0, nb::arg("wire_dtype") = "");
  m.def("broadcast", &BroadcastArrays, nb::arg("arrays"), nb::arg("dtype"), nb::arg("root"), nb::arg("name"));
  m.def("allgather", &AllgatherArray, nb::arg("array"), nb::arg("dtype"), nb::arg("name"));
  m.def("barrier", &BarrierNamed, nb::arg("name"));
  m.def("join", &Join);
}

}  // namespace smddp
