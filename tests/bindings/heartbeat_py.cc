#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>

#include "bindings/bind.h"
#include "python/errors.h"
#include "runtime/health/heartbeat.h"

namespace nb = nanobind;

namespace smddp {
namespace {

constexpr double kSecond = 1e9;

// One rank's watch over invented hosts, with a clock in seconds that the test turns.
class Watch {
 public:
  Watch(int rank, const std::vector<std::string>& hosts, double timeout_s)
      : topology_(std::make_unique<Topology>(ValueOrThrow(Topology::Build(rank, hosts)))),
        heartbeat_(*topology_, timeout_s) {}

  void Tick(double now_s) { heartbeat_.Tick(Ns(now_s)); }
  void Heard(int rank, double now_s) { heartbeat_.Heard(rank, Ns(now_s)); }
  void Left(int rank, bool reads) { heartbeat_.Left(rank, reads); }
  std::vector<int> Due(double now_s) { return heartbeat_.Due(Ns(now_s)); }
  // `signs[member]`: when it beat last, and whether it is dead.
  std::optional<std::string> FindLost(double now_s, const std::vector<std::pair<double, bool>>& signs) {
    return heartbeat_.FindLost(
        Ns(now_s), [&](int member) { return LifeSigns{Ns(signs.at(member).first), signs.at(member).second}; });
  }

 private:
  static int64_t Ns(double seconds) { return static_cast<int64_t>(seconds * kSecond); }

  const std::unique_ptr<const Topology> topology_;
  Heartbeat heartbeat_;
};

}  // namespace

void BindHeartbeat(nb::module_& m) {
  nb::class_<Watch>(m, "Heartbeat")
      .def(nb::init<int, const std::vector<std::string>&, double>(), nb::arg("rank"), nb::arg("hosts"),
           nb::arg("timeout_s"))
      .def("tick", &Watch::Tick, nb::arg("now_s"))
      .def("heard", &Watch::Heard, nb::arg("rank"), nb::arg("now_s"))
      .def("left", &Watch::Left, nb::arg("rank"), nb::arg("reads") = false)
      .def("due", &Watch::Due, nb::arg("now_s"))
      .def("find_lost", &Watch::FindLost, nb::arg("now_s"), nb::arg("signs"));
}

}  // namespace smddp
