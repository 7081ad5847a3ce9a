// Test access to a job of ranks-as-threads whose ranks Python drives, each from a thread of its own.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "bindings/bind.h"
#include "inproc/cluster.h"
#include "python/errors.h"
#include "python/waiter.h"

namespace nb = nanobind;

namespace smddp {
namespace {

using Floats = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

TensorRef InPlace(const Floats& array) {
  return {DType::kFloat32, {static_cast<int64_t>(array.size())}, array.data(), array.data()};
}

// A request under way. The caller keeps its arrays.
class Pending {
 public:
  DoneCallback callback() { return waiter_.callback(); }
  int* last() { return last_.get(); }
  // Of a join the last rank, else -1.
  int Wait() {
    ThrowIfError(waiter_.Wait());
    return *last_;
  }

 private:
  Waiter waiter_;
  std::shared_ptr<int> last_ = std::make_shared<int>(-1);
};

class Ranks {
 public:
  Ranks(const std::vector<std::string>& hosts, int64_t chunk_bytes, int64_t bucket_bytes, int64_t cache_capacity) {
    ClusterOptions options;
    options.host_of_rank = hosts;
    options.chunk_bytes = chunk_bytes;
    options.bucket_bytes = bucket_bytes;
    options.cache_capacity = cache_capacity;
    cluster_ = ValueOrThrow(StartInprocCluster(options));
  }

  Pending Allreduce(int rank, const std::vector<Floats>& arrays, const std::string& name, int op) {
    std::vector<TensorRef> tensors;
    for (const Floats& array : arrays) tensors.push_back(InPlace(array));
    Pending pending;
    session(rank).Submit({RequestKind::kAllreduce, name, std::move(tensors), {static_cast<ReduceOp>(op)}},
                         pending.callback());
    return pending;
  }

  // What an allgather, a broadcast or a barrier needs does not matter to those who ask whether it is refused.
  Pending Other(int rank, const std::string& kind, const Floats& array, const std::string& name) {
    Pending pending;
    if (kind == "broadcast") {
      session(rank).Submit({RequestKind::kBroadcast, name, {InPlace(array)}}, pending.callback());
    } else if (kind == "barrier") {
      session(rank).Submit({RequestKind::kBarrier, name, {}}, pending.callback());
    } else {
      Request request(RequestKind::kAllgather, name, {InPlace(array)});
      const auto memory = std::make_shared<std::vector<float>>();
      request.allocate = [memory](int, const std::vector<int64_t>& rows) -> Result<void*> {
        memory->resize(std::accumulate(rows.begin(), rows.end(), int64_t{0}));
        return memory->data();
      };
      session(rank).Submit(std::move(request), [memory, done = pending.callback()](const Status& s) { done(s); });
    }
    return pending;
  }

  int Plan(int rank, const std::string& key, const std::vector<int64_t>& elements, int op) {
    PlanSpec spec;
    spec.key = key;
    for (const int64_t each : elements) spec.tensors.push_back({DType::kFloat32, {each}});
    spec.op = static_cast<ReduceOp>(op);
    return ValueOrThrow(session(rank).RegisterPlan(spec));
  }

  Pending Gradient(int rank, int plan, int index, const Floats& array, uint64_t run, int site, bool alone) {
    Pending pending;
    session(rank).ReducePlanned({plan, index, site, alone, run}, InPlace(array), pending.callback());
    return pending;
  }

  // What a framework does when another operation of the step fails.
  void Cancel(int rank, int plan, int index, uint64_t run, int site) {
    session(rank).CancelPlanned({plan, index, site, false, run});
  }

  // What the framework does when it begins to run a graph that holds the plan, or the request.
  void Begin(int rank, int plan, uint64_t run, int site) { session(rank).BeginPlanned({plan, 0, site, false, run}); }
  void BeginNamed(int rank, const std::string& name) { session(rank).Begin(name); }

  Pending Join(int rank) {
    Pending pending;
    session(rank).Join(pending.last(), pending.callback());
    return pending;
  }

  void CancelNamed(int rank, const std::string& name) { session(rank).Cancel(name); }

  int64_t ControlBytes(int rank) { return session(rank).diagnostics().Stats().control_bytes; }
  int64_t ControlMessages(int rank) { return session(rank).diagnostics().Stats().control_messages; }

  int64_t Plans(int rank) { return session(rank).diagnostics().Stats().plans; }

  void Stop(int rank, bool at_exit) {
    nb::gil_scoped_release release;
    cluster_->Stop(rank, at_exit);
  }

 private:
  Session& session(int rank) { return cluster_->session(rank); }

  std::unique_ptr<InprocCluster> cluster_;
};

}  // namespace

void BindRanks(nb::module_& m) {
  nb::class_<Pending>(m, "Pending").def("wait", &Pending::Wait);
  nb::class_<Ranks>(m, "Ranks")
      .def(nb::init<const std::vector<std::string>&, int64_t, int64_t, int64_t>(), nb::arg("hosts"),
           nb::arg("chunk_bytes") = 4096, nb::arg("bucket_bytes") = 8192, nb::arg("cache_capacity") = 1024)
      .def("allreduce", &Ranks::Allreduce, nb::arg("rank"), nb::arg("arrays"), nb::arg("name"), nb::arg("op"))
      .def("other", &Ranks::Other, nb::arg("rank"), nb::arg("kind"), nb::arg("array"), nb::arg("name"))
      .def("plan", &Ranks::Plan, nb::arg("rank"), nb::arg("key"), nb::arg("elements"), nb::arg("op"))
      .def("gradient", &Ranks::Gradient, nb::arg("rank"), nb::arg("plan"), nb::arg("index"), nb::arg("array"),
           nb::arg("run") = 0, nb::arg("site") = 0, nb::arg("alone") = true)
      .def("cancel", &Ranks::Cancel, nb::arg("rank"), nb::arg("plan"), nb::arg("index"), nb::arg("run"),
           nb::arg("site") = 0)
      .def("begin", &Ranks::Begin, nb::arg("rank"), nb::arg("plan"), nb::arg("run"), nb::arg("site") = 0)
      .def("begin_named", &Ranks::BeginNamed, nb::arg("rank"), nb::arg("name"))
      .def("join", &Ranks::Join, nb::arg("rank"))
      .def("cancel_named", &Ranks::CancelNamed, nb::arg("rank"), nb::arg("name"))
      .def("control_messages", &Ranks::ControlMessages, nb::arg("rank"))
      .def("control_bytes", &Ranks::ControlBytes, nb::arg("rank"))
      .def("plans", &Ranks::Plans, nb::arg("rank"))
      .def("stop", &Ranks::Stop, nb::arg("rank"), nb::arg("at_exit") = false);
}

}  // namespace smddp
