// NumPy arrays sent between ranks: used for objects and metrics, with TensorFlow and without it.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "python/arrays.h"
#include "python/bindings.h"
#include "python/waiter.h"

namespace nb = nanobind;

namespace smddp {
namespace {

void Broadcast(const std::vector<Array>& arrays, const std::string& dtype, int root, const std::string& name,
               int process_set) {
  Waiter waiter;
  Request request(RequestKind::kBroadcast, name, RefsTo(arrays, dtype));
  request.root = root;
  SessionOrThrow(process_set)->Submit(std::move(request), waiter.callback());
  ThrowIfError(waiter.Wait());
}

// Returns the bytes of all ranks, concatenated, and the first dimension of every rank.
nb::tuple Allgather(const Array& array, const std::string& dtype, const std::string& name, int process_set) {
  Waiter waiter;
  Request request(RequestKind::kAllgather, name, {RefTo(array, dtype)});
  RowsFromEach result(request.tensors[0].row_bytes());
  request.allocate = [&](int, const std::vector<int64_t>& dim0) { return result.Allocate(dim0); };
  SessionOrThrow(process_set)->Submit(std::move(request), waiter.callback());
  ThrowIfError(waiter.Wait());
  return result.Take();
}

}  // namespace

void BindArrays(nb::module_& m) {
  m.def("broadcast", &Broadcast, nb::arg("arrays"), nb::arg("dtype"), nb::arg("root"), nb::arg("name"),
        nb::arg("process_set") = 0);
  m.def("allgather", &Allgather, nb::arg("array"), nb::arg("dtype"), nb::arg("name"), nb::arg("process_set") = 0);
}

}  // namespace smddp
