// The session's life and what belongs to it: plans, process sets, timeline, errors.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/env/env.h"
#include "core/env/launcher.h"
#include "core/process/log.h"
#include "core/process/version.h"
#include "python/bindings.h"
#include "python/errors.h"
#include "python/waiter.h"
#include "runtime/api/session.h"
#include "transport/mpi_library.h"

namespace nb = nanobind;

namespace smddp {
namespace {

template <class Call>
auto WithoutGil(Call call) {
  nb::gil_scoped_release release;
  return call();
}

// Warns of variables that are not read anywhere, with the names that may have been meant.
void WarnOfUnknownNames() {
  const std::vector<std::string> unknown = UnknownNames(NamesInEnvironment());
  if (unknown.empty()) return;
  nb::list known;
  for (const EnvVariable& variable : EnvVariables()) known.append(variable.name);
  const nb::object close_matches = nb::module_::import_("difflib").attr("get_close_matches");
  std::string text;
  for (const std::string& name : unknown) {
    const nb::list closest(close_matches(name, known, /*n=*/1, /*cutoff=*/0.8));
    text += (text.empty() ? "" : ", ") + name;
    if (nb::len(closest) > 0) text += " (" + nb::cast<std::string>(closest[0]) + "?)";
  }
  Log(LogLevel::kWarning, "Unknown SMDDP_ environment variables, which have no effect: ", text, ". Are they misspelt?");
}

void Init(const std::vector<int>& ranks, uintptr_t comm_address, bool dynamic_process_sets,
          const std::vector<std::pair<std::string, std::string>>& versions,
          const std::tuple<uintptr_t, size_t, int>& tensor_memory,
          const std::tuple<int, std::vector<std::string>, nb::bytes, int>& world) {
  StartOptions options;
  const nb::bytes& key = std::get<2>(world);
  if (key.size() != 0 && key.size() != sizeof(Bits128)) throw nb::value_error("A key of 16 bytes is needed.");
  std::memcpy(options.world.key.data(), key.data(), key.size());
  std::tie(options.world.rank, options.world.addresses, std::ignore, options.world.listener) = world;
  options.tensor_memory = reinterpret_cast<void*>(std::get<0>(tensor_memory));
  std::tie(std::ignore, options.tensor_memory_bytes, options.tensor_memory_file) = tensor_memory;
  options.versions = versions;
  options.dynamic_process_sets = dynamic_process_sets;
  options.ranks = ranks;
  options.communicator = reinterpret_cast<const void*>(comm_address);
  ThrowIfError(WithoutGil([&] { return StartSession(options); }));
  if (SessionOrThrow()->topology().rank() == 0) WarnOfUnknownNames();
}

void Shutdown(bool at_exit) {
  ThrowIfError(WithoutGil([&] { return StopSession(at_exit); }));
}

// The reason and the text of the session's failure, or None.
nb::object FailureOfSession() {
  const Status failure = SessionFailure();
  if (failure.ok()) return nb::none();
  return nb::make_tuple(NameOf(failure.reason()), failure.message());
}

// Each set as its ranks or as the address of an MPI_Comm; the other is empty (0).
std::vector<int> AddSets(const std::vector<std::pair<std::vector<int>, uintptr_t>>& sets, bool at_start) {
  std::vector<ProcessSetSpec> specs;
  for (const auto& [ranks, comm_address] : sets) {
    specs.push_back({ranks, reinterpret_cast<const void*>(comm_address)});
  }
  SessionOrThrow();
  return ValueOrThrow(WithoutGil([&] { return AddProcessSets(specs, at_start); }));
}

bool RemoveSet(int process_set) {
  SessionOrThrow();
  return ValueOrThrow(WithoutGil([&] { return RemoveProcessSet(process_set); }));
}

int RegisterPlan(const std::string& key, const std::vector<std::string>& dtypes,
                 const std::vector<std::vector<int64_t>>& shapes, int op, double prescale, double postscale,
                 const std::string& wire_dtype, const std::vector<std::string>& notes, int process_set,
                 const std::vector<std::string>& names, const std::string& kind, int parts) {
  if (dtypes.size() != shapes.size()) throw nb::value_error("As many dtypes as shapes are needed.");
  PlanSpec spec;
  spec.key = key;
  spec.notes = notes;
  spec.names = names;
  if (kind != "allreduce") spec.parting = {kind == "gather_parts" ? PartMode::kGather : PartMode::kReduce, parts};
  for (size_t i = 0; i < dtypes.size(); ++i) {
    spec.tensors.push_back({ValueOrThrow(DTypeFromName(dtypes[i])), shapes[i]});
  }
  const WireDType wire = ValueOrThrow(WireDTypeFromName(wire_dtype));
  spec.SetArithmetic({static_cast<ReduceOp>(op), prescale, postscale, wire});
  if (kind == "gather_parts") spec.SetArithmetic({ReduceOp::kSum, 1.0, 1.0, wire});
  return ValueOrThrow(SessionOrThrow(process_set)->RegisterPlan(spec));
}

std::vector<int> PlacesInParts(int process_set, int parts) {
  const auto session = SessionOrThrow(process_set);
  std::vector<int> places;
  for (int rank = 0; rank < session->topology().size(); ++rank) {
    places.push_back(ValueOrThrow(session->PlaceInParts(rank, parts)));
  }
  return places;
}

nb::dict StatsDict(int process_set) {
  const SessionStats stats = SessionOrThrow(process_set)->diagnostics().Stats();
  nb::dict result;
  result["planned_buckets"] = stats.planned_buckets;
  result["named_requests"] = stats.named_requests;
  result["steps"] = stats.steps;
  result["reducing_ns"] = stats.reducing_ns;
  result["exposed_ns"] = stats.exposed_ns;
  result["plans"] = stats.plans;
  result["node_bytes_sent"] = stats.node_bytes_sent;
  result["node_bytes_referred"] = stats.node_bytes_referred;
  result["rail_bytes_sent"] = stats.rail_bytes_sent;
  result["arena_bytes"] = stats.arena_bytes;
  result["ended_rank"] = stats.ended_rank;
  result["rail_latency_us"] = stats.rail_latency_us;
  result["rail_bandwidth_mbps"] = stats.rail_bandwidth_mbps;
  return result;
}

// Calls `ask` for an uncaught exception; the session may have ended in the meantime: smddp_tf/lifecycle/uncaught.py.
template <class Ask>
auto OfSession(Ask ask) {
  return [ask] {
    const auto session = CurrentSession();
    return session != nullptr ? ask(session->diagnostics()) : decltype(ask(session->diagnostics()))();
  };
}

void RaiseException(const std::string& text) {
  TheMpi().Abandon();
  if (const auto session = CurrentSession()) session->diagnostics().Raise(text);
}

void StartTimeline(const std::string& path, bool mark_cycles) {
  const auto session = SessionOrThrow();
  ThrowIfError(WithoutGil([&] { return session->diagnostics().StartTimeline(path, mark_cycles); }));
}

// Rank 0's file, and the hosts of the ranks that have written a part.
std::pair<std::string, std::map<int, std::string>> StopTimeline() {
  const auto session = SessionOrThrow();
  const TimelineParts parts = WithoutGil([&] { return session->diagnostics().StopTimeline(); });
  std::map<int, std::string> hosts;
  for (const int rank : parts.ranks) hosts[rank] = session->topology().host_name(rank);
  return {parts.path, hosts};
}

nb::dict BuildInfo() {
  nb::dict info;
  info["version"] = Version();
  info["compiler"] = __VERSION__;
  const DeviceSupport found = WithoutGil(&FindDevices);  // loads libraries
  info["cuda"] = !found.platform.empty();
  info["cuda_platform"] = found.platform;
  info["gpus"] = found.count;
  info["why_no_gpu"] = found.why_none;
  info["nccl_version"] = found.nccl_version;
  info["why_no_nccl"] = found.why_no_nccl;
  return info;
}

template <class Read>
auto FromTopology(Read read) {
  return [read] { return read(SessionOrThrow()->topology()); };
}

}  // namespace

void BindControl(nb::module_& m) {
  m.def("init", &Init, nb::arg("ranks"), nb::arg("comm_address"), nb::arg("dynamic_process_sets") = false,
        nb::arg("versions") = std::vector<std::pair<std::string, std::string>>(),
        nb::arg("tensor_memory") = std::tuple<uintptr_t, size_t, int>(0, 0, -1),
        nb::arg("world") = std::make_tuple(0, std::vector<std::string>(), nb::bytes("", 0), -1));
  m.def("shutdown", &Shutdown, nb::arg("at_exit") = false);
  m.def("session_failure", &FailureOfSession);
  m.def("is_initialized", [] { return CurrentSession() != nullptr; });
  m.def("rank", FromTopology([](const Topology& t) { return t.rank(); }));
  m.def("size", FromTopology([](const Topology& t) { return t.size(); }));
  m.def("local_rank", FromTopology([](const Topology& t) { return t.local_rank(); }));
  m.def("local_size", FromTopology([](const Topology& t) { return t.local_size(); }));
  m.def("cross_rank", FromTopology([](const Topology& t) { return t.cross_rank(); }));
  m.def("cross_size", FromTopology([](const Topology& t) { return t.cross_size(); }));
  m.def("is_homogeneous", FromTopology([](const Topology& t) { return t.uniform(); }));
  m.def(
      "needs_mpi", [](bool comm, bool initialized) { return ValueOrThrow(NeedsMpi(comm, initialized)); },
      nb::arg("has_communicator"), nb::arg("is_initialized"));
  m.def("start_timeout", [] { return ValueOrThrow(ReadEnv()).start_timeout_s; });
  m.def("load_mpi", [](const std::string& path) { ThrowIfError(LoadMpi(path)); }, nb::arg("path"));
  m.def("mpi_initialized", [] { return TheMpi().is_initialized(); });
  m.def("mpi_threads_supported", [] { return TheMpi().has_thread_multiple(); });
  m.def("register_plan", &RegisterPlan, nb::arg("key"), nb::arg("dtypes"), nb::arg("shapes"), nb::arg("op"),
        nb::arg("prescale"), nb::arg("postscale"), nb::arg("wire_dtype"), nb::arg("notes") = std::vector<std::string>(),
        nb::arg("process_set") = 0, nb::arg("names") = std::vector<std::string>(), nb::arg("kind") = "allreduce",
        nb::arg("parts") = 1);
  m.def("add_process_sets", &AddSets, nb::arg("sets"), nb::arg("at_start"));
  m.def("remove_process_set", &RemoveSet, nb::arg("process_set"));
  m.def("process_sets", [] {
    SessionOrThrow();
    return ProcessSets();
  });
  m.def("places_in_parts", &PlacesInParts, nb::arg("process_set"), nb::arg("parts"));
  m.def("stats", &StatsDict, nb::arg("process_set") = 0);
  m.def("raise_exception", &RaiseException, nb::arg("text"));
  m.def(
      "tell_launcher",
      [](bool raised, const std::string& text) {
        TellLauncher(raised ? EndNote::kRaised : EndNote::kBecauseOfOther, text);
      },
      nb::arg("raised"), nb::arg("text"));
  m.def("others_acknowledged",
        OfSession([](const SessionDiagnostics& session) { return session.Raised().others_acknowledged; }));
  m.def("tell_traceback_printed", OfSession([](SessionDiagnostics& session) { session.TellTracebackPrinted(); }));
  m.def("raised_elsewhere", OfSession([](const SessionDiagnostics& session) { return session.Raised().elsewhere; }));
  m.def("traceback_printed_elsewhere",
        OfSession([](const SessionDiagnostics& session) { return session.Raised().shown_elsewhere; }));
  m.def("leave_mpi_unfinished", [] { TheMpi().Abandon(); });
  m.def("end_last", [] { TheMpi().EndLast(); });
  m.def("start_timeline", &StartTimeline, nb::arg("path"), nb::arg("mark_cycles"));
  m.def("stop_timeline", &StopTimeline);
  m.def("switch", [](const std::string& variable) { return ValueOrThrow(ReadSwitch(variable)); }, nb::arg("variable"));
  m.def("monitor_folder", &ReadMonitorFolder);
  m.def("build_info", &BuildInfo);
  m.def(
      "suggest_nccl", [](const std::string& path) { SetDefault("SMDDP_NCCL_LIBRARY", path.c_str()); }, nb::arg("path"));
}

}  // namespace smddp
