// What is reduced together of named allreduces.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "bindings/bind.h"
#include "python/errors.h"
#include "runtime/named/fusion_queue.h"

namespace nb = nanobind;

namespace smddp {
namespace {

class Queue {
 public:
  explicit Queue(int64_t most_bytes) : queue_(most_bytes) {}

  // False: it does not wait here.
  bool Add(const std::string& name, const std::vector<std::string>& dtypes, int64_t elements, int op, double prescale,
           const std::string& wire) {
    Verdict verdict;
    verdict.kind = RequestKind::kAllreduce;
    verdict.name = verdict.request.name = name;
    verdict.request.kind = RequestKind::kAllreduce;
    for (const std::string& dtype : dtypes) {
      verdict.request.dtypes.push_back(ValueOrThrow(DTypeFromName(dtype)));
      verdict.request.shapes.push_back({elements});
    }
    verdict.request.op = static_cast<ReduceOp>(op);
    verdict.request.prescale = prescale;
    if (!wire.empty()) verdict.request.wire_dtype = ValueOrThrow(DTypeFromName(wire));
    if (!FusionQueue::Takes(verdict)) return false;
    queue_.Add(std::move(verdict));
    return true;
  }

  // The names that leave together.
  std::vector<std::string> Next() { return NamesOf(queue_.Next()); }
  std::vector<std::string> Take(const std::string& name) { return NamesOf(queue_.Take(name)); }
  void Ended() { queue_.Ended(); }

 private:
  static std::vector<std::string> NamesOf(const std::optional<Verdict>& verdict) {
    if (!verdict) return {};
    std::vector<std::string> names = {verdict->name};
    for (const RequestRef& each : verdict->fused) names.push_back(each.name);
    return names;
  }

  FusionQueue queue_;
};

}  // namespace

void BindNamed(nb::module_& m) {
  nb::class_<Queue>(m, "FusionQueue")
      .def(nb::init<int64_t>(), nb::arg("most_bytes"))
      .def("add", &Queue::Add, nb::arg("name"), nb::arg("dtypes") = std::vector<std::string>{"float32"},
           nb::arg("elements") = 1000, nb::arg("op") = 1, nb::arg("prescale") = 1.0, nb::arg("wire") = "")
      .def("next", &Queue::Next)
      .def("take", &Queue::Take, nb::arg("name"))
      .def("ended", &Queue::Ended);
}

}  // namespace smddp
