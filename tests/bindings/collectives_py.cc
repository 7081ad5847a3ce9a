// Collectives of NumPy arrays in the process's session, beside those that smddp_tf._core has.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/bind.h"
#include "python/arrays.h"
#include "python/waiter.h"

namespace nb = nanobind;

namespace smddp {
namespace {

void Allreduce(const std::vector<Array>& arrays, const std::string& dtype, const std::string& name, int op,
               double prescale, double postscale, const std::string& wire_dtype, int process_set) {
  const WireDType wire = ValueOrThrow(WireDTypeFromName(wire_dtype));
  AllreduceRequest request = {{static_cast<ReduceOp>(op), prescale, postscale, wire}, name, RefsTo(arrays, dtype)};
  MakeAndWait(process_set,
              [&](Session& session, DoneCallback done) { session.Allreduce(std::move(request), std::move(done)); });
}

// In place: a gradient of a plan (register_plan).
void ReducePlanned(int plan, int index, const Array& array, const std::string& dtype, int process_set) {
  const TensorRef tensor = RefTo(array, dtype);
  MakeAndWait(process_set, [&](Session& session, DoneCallback done) {
    session.ReducePlanned({plan, index}, tensor, std::move(done));
  });
}

// Returns the bytes from every rank, one after another, and how many rows come from each. Without splits as many rows
// go to each rank.
nb::tuple Alltoall(const Array& array, const std::string& dtype, const std::optional<std::vector<int64_t>>& splits,
                   const std::string& name, int process_set) {
  AlltoallRequest request;
  request.name = name;
  request.tensor = RefTo(array, dtype);
  request.even_split = !splits;
  if (splits) request.splits = *splits;
  RowsFromEach result(request.tensor.row_bytes());
  request.allocate = [&](const std::vector<int64_t>& received) { return result.Allocate(received); };
  MakeAndWait(process_set,
              [&](Session& session, DoneCallback done) { session.Alltoall(std::move(request), std::move(done)); });
  return result.Take();
}

void Barrier(const std::string& name, int process_set) {
  MakeAndWait(process_set, [&](Session& session, DoneCallback done) { session.Barrier({name}, std::move(done)); });
}

int Join(int process_set) {
  int last = 0;
  MakeAndWait(process_set, [&](Session& session, DoneCallback done) { session.Join(&last, std::move(done)); });
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
  m.def("barrier", &Barrier, nb::arg("name"), nb::arg("process_set") = 0);
  m.def("join", &Join, nb::arg("process_set") = 0);
}

}  // namespace smddp
