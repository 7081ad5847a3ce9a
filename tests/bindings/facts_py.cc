// What the engine says of itself: its event_log, its lists of variables and algorithms, and what it has chosen.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "bindings/bind.h"
#include "collectives/rail/algorithm.h"
#include "core/env/env.h"
#include "python/errors.h"
#include "python/waiter.h"
#include "runtime/api/session.h"
#include "transport/mpi_library.h"

namespace nb = nanobind;

namespace smddp {
namespace {

nb::list TraceStop() {
  nb::list events;
  for (const TraceEvent& event : SessionOrThrow()->diagnostics().TraceStop()) {
    nb::dict row;
    row["what"] = NameOf(event.what);
    row["name"] = event.name;
    row["index"] = event.index;
    row["time_ns"] = event.time_ns;
    events.append(row);
  }
  return events;
}

nb::list EnvironmentList() {
  nb::list rows;
  for (const EnvVariable& variable : EnvVariables()) {
    nb::dict row;
    row["name"] = variable.name;
    row["alias"] = variable.alias;
    row["default"] = variable.default_value;
    row["meaning"] = variable.meaning;
    row["for_developers"] = variable.for_developers;
    rows.append(row);
  }
  return rows;
}

std::vector<std::string> AlgorithmNames() {
  std::vector<std::string> names;
  for (const AllreduceAlgorithm* algorithm : Algorithms()) names.push_back(algorithm->name);
  return names;
}

std::string RailAlgorithm(int64_t elements, const std::string& dtype) {
  return SessionOrThrow()->diagnostics().RailAlgorithm(elements, ValueOrThrow(DTypeFromName(dtype)));
}

}  // namespace

void BindFacts(nb::module_& m) {
  m.def("trace_start", [] { SessionOrThrow()->diagnostics().TraceStart(); });
  m.def("trace_stop", &TraceStop);
  m.def("env_variables", &EnvironmentList);
  m.def("unknown_variables", &UnknownNames, nb::arg("names"));
  m.def("algorithms", &AlgorithmNames);
  m.def("rail_algorithm", &RailAlgorithm, nb::arg("elements"), nb::arg("dtype"));
  m.def("mpi_library_version", [] { return std::string(TheMpi().version_text()); });
}

}  // namespace smddp
