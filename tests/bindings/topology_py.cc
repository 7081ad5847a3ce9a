#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/bind.h"
#include "core/slice.h"
#include "python/errors.h"
#include "topology/topology.h"

namespace nb = nanobind;

namespace smddp {
namespace {

nb::dict Describe(int my_rank, const std::vector<std::string>& hosts) {
  const Topology topology = ValueOrThrow(Topology::Build(my_rank, hosts));
  nb::dict result;
  result["rank"] = topology.rank();
  result["local_rank"] = topology.local_rank();
  result["local_size"] = topology.local_size();
  result["node_count"] = topology.node_count();
  result["rail_count"] = topology.rail_count();
  result["is_reducer"] = topology.is_reducer();
  result["rail"] = topology.rail().world_ranks();
  return result;
}

nb::tuple Slice(int64_t elements, size_t element_size, int parts, int index) {
  if (elements < 0 || element_size == 0 || parts < 1 || index < 0 || index >= parts) {
    throw nb::value_error("Expected elements >= 0, element_size >= 1 and 0 <= index < parts.");
  }
  const Range range = SliceOf(elements, element_size, parts, index);
  return nb::make_tuple(range.begin, range.end);
}

}  // namespace

void BindTopology(nb::module_& m) {
  m.def("topology", &Describe, nb::arg("my_rank"), nb::arg("hosts"));
  m.def("slice_of", &Slice, nb::arg("elements"), nb::arg("element_size"), nb::arg("parts"), nb::arg("index"));
}

}  // namespace smddp
