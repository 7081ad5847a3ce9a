// Test access to a GPU and its kernels (device/device.h), for tests and benchmarks/gpu. Addresses are numbers: the
// memory may be CuPy's, PyTorch's or this class's own.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <time.h>

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings/bind.h"
#include "compute/compute.h"
#include "compute/fused_view.h"
#include "core/clock.h"
#include "core/dtype.h"
#include "python/errors.h"
#include "python/waiter.h"
#include "runtime/api/session.h"
#include "runtime/gpu/devices.h"

namespace nb = nanobind;

namespace smddp {
namespace {

using Address = uintptr_t;
using Addresses = std::vector<Address>;

void* At(Address address) { return reinterpret_cast<void*>(address); }
Address AddressOf(const void* memory) { return reinterpret_cast<Address>(memory); }
DType ParseDType(const std::string& name) { return ValueOrThrow(DTypeFromName(name)); }

// Pieces of memory as one array, made once and used often.
class GpuView {
 public:
  GpuView(const Addresses& inputs, const Addresses& outputs, const std::vector<int64_t>& elements,
          const std::string& dtype, const std::string& wire, double factor, int64_t divisor, double after_factor,
          int64_t after_divisor)
      : view_(ParseDType(dtype), ParseDType(wire), Pieces(inputs, outputs, elements), {factor, divisor},
              {after_factor, after_divisor}, CpuCompute()) {}

  const FusedView& view() const { return view_; }
  Range Checked(int64_t begin, int64_t end) const {
    if (end < 0) end = view_.elements();
    if (0 <= begin && begin <= end && end <= view_.elements()) return {begin, end};
    throw nb::value_error("Expected a range inside of the view.");
  }

 private:
  static std::vector<Piece> Pieces(const Addresses& inputs, const Addresses& outputs,
                                   const std::vector<int64_t>& elements) {
    if (inputs.size() != elements.size() || outputs.size() != elements.size()) {
      throw nb::value_error("As many inputs, outputs and numbers of elements are needed.");
    }
    std::vector<Piece> pieces;
    for (size_t i = 0; i < elements.size(); ++i) pieces.push_back({At(inputs[i]), At(outputs[i]), elements[i]});
    return pieces;
  }

  const FusedView view_;
};

// One device. What is made here is given back here, or goes with the process.
class Gpu {
 public:
  explicit Gpu(int index) {
    device_ = ValueOrThrow(ValueOrThrow(TheDevices().plugin())->Open(index));
    event_ = ValueOrThrow(device_->MakeEvent());
  }

  Device& device() { return *device_; }

  nb::dict Info() const {
    const DeviceInfo& info = device_->info();
    nb::dict facts;
    facts["index"] = info.index;
    facts["name"] = info.name;
    facts["uuid"] = info.uuid;
    facts["bus_id"] = info.bus_id;
    facts["processors"] = info.processors;
    return facts;
  }

  Address Allocate(size_t bytes) { return AddressOf(ValueOrThrow(device_->Allocate(bytes))); }
  void Free(Address memory) { device_->Free(At(memory)); }
  Address AllocatePinned(size_t bytes) { return AddressOf(ValueOrThrow(device_->AllocatePinned(bytes))); }
  void FreePinned(Address memory) { device_->FreePinned(At(memory)); }
  Address Stream() { return AddressOf(ValueOrThrow(device_->MakeStream())); }

  void Copy(Address to, Address from, size_t bytes, Address stream) {
    nb::gil_scoped_release release;
    Throw(device_->Copy(At(to), At(from), bytes, At(stream)));
  }
  // copies[i] is from sources[i]: a loop that Python is too slow for.
  void CopyEach(const Addresses& targets, const Addresses& sources, const std::vector<size_t>& bytes, Address stream) {
    nb::gil_scoped_release release;
    Status status;
    for (size_t i = 0; i < bytes.size() && status.ok(); ++i) {
      status = device_->Copy(At(targets.at(i)), At(sources.at(i)), bytes[i], At(stream));
    }
    Throw(status);
  }

  void Pack(const GpuView& view, Address into, Address stream, int64_t begin, int64_t end) {
    ThrowIfError(device_->Pack(view.view(), view.Checked(begin, end), At(into), At(stream)));
  }
  void Unpack(const GpuView& view, Address from, Address stream, int64_t begin, int64_t end) {
    ThrowIfError(device_->Unpack(view.view(), view.Checked(begin, end), At(from), At(stream)));
  }

  // Waits, by looking again and again, until `stream` has done what it holds by now.
  void Synchronize(Address stream, double seconds) {
    ThrowIfError(device_->Record(event_, At(stream)));
    Result<bool> done = false;
    {
      nb::gil_scoped_release release;
      done = WaitForEvent(NowNs() + static_cast<int64_t>(seconds * 1e9));
    }
    if (!ValueOrThrow(std::move(done))) throw EngineError(Status(Reason::kTimedOut, "The GPU did not finish in time."));
  }

 private:
  // For calls without the GIL, which an exception needs.
  static void Throw(const Status& status) {
    if (status.ok()) return;
    nb::gil_scoped_acquire acquire;
    ThrowIfError(status);
  }

  // False: not by then.
  Result<bool> WaitForEvent(int64_t deadline_ns) {
    while (NowNs() < deadline_ns) {
      SMDDP_ASSIGN_OR_RETURN(const bool done, device_->Done(event_));
      if (done) return true;
      const timespec pause = {0, 20 * 1000};
      nanosleep(&pause, nullptr);
    }
    return false;
  }

  Device* device_ = nullptr;  // the plug-in's
  DeviceEvent event_ = nullptr;
};

// One member of a group (device/group.h), NCCL's: that the library can be loaded and called.
class GpuGroup {
 public:
  GpuGroup(Gpu& gpu, const nb::bytes& id, int size, int member)
      : group_(ValueOrThrow(Library().Join({id.c_str(), id.size()}, size, member, gpu.device()))) {}

  static DeviceGroupLibrary& Library() { return *ValueOrThrow(TheDevices().groups()); }

  bool Ready() { return ValueOrThrow(group_->Ready()); }
  void Health() { ThrowIfError(group_->Health()); }
  // `kind`: of GroupCall.
  void Call(int kind, Address into, Address from, int64_t each, const std::string& dtype, Address stream) {
    ThrowIfError(
        group_->Call({{static_cast<GroupCall::Kind>(kind), At(into), At(from), each, ParseDType(dtype)}}, At(stream)));
  }
  void Abort() { group_->Abort(); }

 private:
  const std::unique_ptr<DeviceGroup> group_;
};

nb::bytes MakeGroupId() {
  const std::string id = ValueOrThrow(GpuGroup::Library().MakeId());
  return nb::bytes(id.data(), id.size());
}

// The gradients of a plan, on the device and in place, after what `stream` holds. Returns when they have been handed
// back: the stream then waits for the results.
void ReducePlannedOnDevice(int plan, const Addresses& gradients, const std::vector<int64_t>& elements,
                           const std::string& dtype, Address stream, int process_set) {
  if (gradients.size() != elements.size())
    throw nb::value_error("As many addresses as numbers of elements are needed.");
  std::list<Waiter> waiters;
  const std::shared_ptr<Session> session = SessionOrThrow(process_set);
  for (size_t i = 0; i < gradients.size(); ++i) {
    TensorRef tensor;
    tensor.dtype = ParseDType(dtype);
    tensor.shape = {elements[i]};
    tensor.input = tensor.output = At(gradients[i]);
    tensor.device = ValueOrThrow(WorkOnDevice(tensor.input, At(stream)));
    session->ReducePlanned({plan, static_cast<int>(i)}, tensor, waiters.emplace_back().callback());
  }
  std::vector<Status> statuses;
  for (Waiter& waiter : waiters) statuses.push_back(waiter.Wait());
  for (const Status& status : statuses) ThrowIfError(status);
}

}  // namespace

void BindDeviceKernels(nb::module_& m) {
  nb::class_<GpuView>(m, "GpuView")
      .def(nb::init<const Addresses&, const Addresses&, const std::vector<int64_t>&, const std::string&,
                    const std::string&, double, int64_t, double, int64_t>(),
           nb::arg("inputs"), nb::arg("outputs"), nb::arg("elements"), nb::arg("dtype"), nb::arg("wire"),
           nb::arg("factor") = 1.0, nb::arg("divisor") = 1, nb::arg("after_factor") = 1.0,
           nb::arg("after_divisor") = 1);
  nb::class_<Gpu>(m, "Gpu")
      .def(nb::init<int>(), nb::arg("index") = 0)
      .def("info", &Gpu::Info)
      .def("allocate", &Gpu::Allocate, nb::arg("bytes"))
      .def("free", &Gpu::Free, nb::arg("memory"))
      .def("allocate_pinned", &Gpu::AllocatePinned, nb::arg("bytes"))
      .def("free_pinned", &Gpu::FreePinned, nb::arg("memory"))
      .def("stream", &Gpu::Stream)
      .def("copy", &Gpu::Copy, nb::arg("to"), nb::arg("source"), nb::arg("bytes"), nb::arg("stream"))
      .def("copy_each", &Gpu::CopyEach, nb::arg("to"), nb::arg("sources"), nb::arg("bytes"), nb::arg("stream"))
      .def("pack", &Gpu::Pack, nb::arg("view"), nb::arg("into"), nb::arg("stream"), nb::arg("begin") = 0,
           nb::arg("end") = -1)
      .def("unpack", &Gpu::Unpack, nb::arg("view"), nb::arg("source"), nb::arg("stream"), nb::arg("begin") = 0,
           nb::arg("end") = -1)
      .def("synchronize", &Gpu::Synchronize, nb::arg("stream"), nb::arg("seconds") = 60.0);
  nb::class_<GpuGroup>(m, "GpuGroup")
      .def(nb::init<Gpu&, const nb::bytes&, int, int>(), nb::arg("gpu"), nb::arg("id"), nb::arg("size"),
           nb::arg("member"), nb::keep_alive<1, 2>())
      .def("ready", &GpuGroup::Ready)
      .def("health", &GpuGroup::Health)
      .def("call", &GpuGroup::Call, nb::arg("kind"), nb::arg("into"), nb::arg("source"), nb::arg("each"),
           nb::arg("dtype"), nb::arg("stream"))
      .def("abort", &GpuGroup::Abort);
  m.def("gpu_group_id", &MakeGroupId);
  m.def("gpu_group_version", [] { return GpuGroup::Library().version(); });
  m.def("gpu_reduce_planned", &ReducePlannedOnDevice, nb::arg("plan"), nb::arg("gradients"), nb::arg("elements"),
        nb::arg("dtype"), nb::arg("stream"), nb::arg("process_set") = 0);
}

}  // namespace smddp
