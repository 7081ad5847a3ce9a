// What GPUs this process sees, and collectives of arrays on them that are matched by name.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "bindings/bind.h"
#include "python/errors.h"
#include "python/waiter.h"
#include "runtime/api/session.h"

namespace nb = nanobind;

namespace smddp {
namespace {

nb::dict Support() {
  const DeviceSupport found = FindDevices();
  nb::dict dict;
  dict["platform"] = found.platform;
  dict["count"] = found.count;
  dict["why_none"] = found.why_none;
  dict["nccl_version"] = found.nccl_version;
  dict["why_no_nccl"] = found.why_no_nccl;
  return dict;
}

// (address, shape): reduced in place
using Tensor = std::tuple<uintptr_t, std::vector<int64_t>>;

// Returns when `stream` waits for the results; the host has not waited for the GPU on their way up.
void Allreduce(const std::vector<Tensor>& tensors, const std::string& dtype, const std::string& name, int op,
               double prescale, double postscale, const std::string& wire_dtype, uintptr_t stream, int process_set) {
  Request request(RequestKind::kAllreduce, name, {}, {static_cast<ReduceOp>(op), prescale, postscale});
  request.wire_dtype = ValueOrThrow(WireDTypeFromName(wire_dtype));
  for (const auto& [address, shape] : tensors) {
    void* const memory = reinterpret_cast<void*>(address);
    TensorRef tensor = {ValueOrThrow(DTypeFromName(dtype)), shape, memory, memory, nullptr};
    tensor.device = ValueOrThrow(WorkOnDevice(memory, reinterpret_cast<void*>(stream)));
    request.tensors.push_back(std::move(tensor));
  }
  Waiter waiter;
  SessionOrThrow(process_set)->Submit(std::move(request), waiter.callback());
  ThrowIfError(waiter.Wait());
}

}  // namespace

void BindDevice(nb::module_& m) {
  m.def("gpu_support", &Support);
  m.def("gpu_allreduce", &Allreduce, nb::arg("tensors"), nb::arg("dtype"), nb::arg("name"), nb::arg("op"),
        nb::arg("prescale") = 1.0, nb::arg("postscale") = 1.0, nb::arg("wire_dtype") = "", nb::arg("stream") = 0,
        nb::arg("process_set") = 0);
}

}  // namespace smddp
