// Collectives of NumPy arrays in the process's session.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/bind.h"
#include "python/waiter.h"

namespace nb = nanobind;

namespace smddp {
namespace {

void Allreduce(const std::vector<Array>& arrays, const std::string& dtype, const std::string& name, int op,
               double prescale, double postscale, const std::string& wire_dtype, int process_set) {
  const WireDType wire = ValueOrThrow(WireDTypeFromName(wire_dtype));
  Waiter waiter;
  SessionOrThrow(process_set)
      ->Submit({RequestKind::kAllreduce,
                name,
                RefsTo(arrays, dtype),
                {static_cast<ReduceOp>(op), prescale, postscale, wire}},
               waiter.callback());
  ThrowIfError(waiter.Wait());
}

// In place; `root` is a number among all ranks.
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

// In place: a gradient of a plan (register_plan).
void ReducePlanned(int plan, int index, const Array& array, const std::string& dtype, int process_set) {
  Waiter waiter;
  SessionOrThrow(process_set)->ReducePlanned({plan, index}, RefTo(array, dtype), waiter.callback());
  ThrowIfError(waiter.Wait());
}

// Returns the bytes from every rank, one after another, and how many rows come from each. Without splits as many rows
// go to each rank.
nb::tuple Alltoall(const Array& array, const std::string& dtype, const std::optional<std::vector<int64_t>>& splits,
                   const std::string& name, int process_set) {
  Waiter waiter;
  Request request(RequestKind::kAlltoall, name, {RefTo(array, dtype)});
  request.even_split = !splits;
  if (splits) request.splits = *splits;
  RowsFromEach result(request.tensors[0].row_bytes());
  request.allocate = [&](int, const std::vector<int64_t>& received) { return result.Allocate(received); };
  SessionOrThrow(process_set)->Submit(std::move(request), waiter.callback());
  ThrowIfError(waiter.Wait());
  return result.Take();
}

void Barrier(const std::string& name, int process_set) {
  Waiter waiter;
  SessionOrThrow(process_set)->Submit({RequestKind::kBarrier, name, {}}, waiter.callback());
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
  m.def("allreduce", &Allreduce, nb::arg("arrays"), nb::arg("dtype"), nb::arg("name"), nb::arg("op"),
        nb::arg("prescale") = 1.0, nb::arg("postscale") = 1.0, nb::arg("wire_dtype") = "", nb::arg("process_set") = 0);
  m.def("reduce_planned", &ReducePlanned, nb::arg("plan"), nb::arg("index"), nb::arg("array"), nb::arg("dtype"),
        nb::arg("process_set") = 0);
  m.def("alltoall", &Alltoall, nb::arg("array"), nb::arg("dtype"), nb::arg("splits").none(), nb::arg("name"),
        nb::arg("process_set") = 0);
  m.def("broadcast", &Broadcast, nb::arg("arrays"), nb::arg("dtype"), nb::arg("root"), nb::arg("name"),
        nb::arg("process_set") = 0);
  m.def("allgather", &Allgather, nb::arg("array"), nb::arg("dtype"), nb::arg("name"), nb::arg("process_set") = 0);
  m.def("barrier", &Barrier, nb::arg("name"), nb::arg("process_set") = 0);
  m.def("join", &Join, nb::arg("process_set") = 0);
}

}  // namespace smddp
