// Test access to jobs of ranks-as-threads whose tensors lie on GPUs.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <list>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "bindings/bind.h"
#include "core/clock.h"
#include "device/events.h"
#include "inproc/cluster.h"
#include "python/errors.h"
#include "python/waiter.h"
#include "runtime/gpu/devices.h"

namespace nb = nanobind;

namespace smddp {
namespace {

using Bytes = nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// The framework of one rank: a stream, and its tensors on the GPU or in host memory.
class FrameworkOfRank {
 public:
  FrameworkOfRank(Device& device, const std::vector<Bytes>& arrays, const std::vector<bool>& on_host, DType dtype)
      : device_(device),
        arrays_(arrays),
        on_host_(on_host),
        dtype_(dtype),
        stream_(ValueOrThrow(device.MakeStream())),
        events_(device) {
    for (const Bytes& array : arrays)
      memory_.push_back(ValueOrThrow(device.Allocate(std::max<size_t>(array.size(), 1))));
  }
  ~FrameworkOfRank() {
    Synchronize();
    for (void* memory : memory_) device_.Free(memory);
    device_.DestroyStream(stream_);
  }
  FrameworkOfRank(const FrameworkOfRank&) = delete;

  // Computes the gradients: the arrays come to the GPU on the stream.
  void Compute() {
    for (size_t i = 0; i < arrays_.size(); ++i) {
      if (!on_host_[i]) ThrowIfError(device_.Copy(memory_[i], arrays_[i].data(), arrays_[i].size(), stream_));
    }
  }
  TensorRef Tensor(size_t i) {
    const int64_t elements = static_cast<int64_t>(arrays_[i].size() / SizeOf(dtype_));
    if (on_host_[i]) return {dtype_, {elements}, arrays_[i].data(), arrays_[i].data()};
    TensorRef tensor = {dtype_, {elements}, memory_[i], memory_[i]};
    tensor.device = ValueOrThrow(events_.Mark(stream_));
    return tensor;
  }
  // Uses the results: the arrays come back on the stream, after what it waits for.
  void Use() {
    for (size_t i = 0; i < arrays_.size(); ++i) {
      if (!on_host_[i]) ThrowIfError(device_.Copy(arrays_[i].data(), memory_[i], arrays_[i].size(), stream_));
    }
  }
  void Synchronize() {
    const Result<DeviceEvent> event = device_.MakeEvent();
    if (!event.ok() || !device_.Record(event.value(), stream_).ok()) return;
    const Deadline deadline = Deadline::After(60);
    for (Result<bool> done = false; done.ok() && !done.value() && !deadline.passed(); usleep(20)) {
      done = device_.Done(event.value());
    }
    device_.DestroyEvent(event.value());
  }

 private:
  Device& device_;
  const std::vector<Bytes> arrays_;
  const std::vector<bool> on_host_;
  const DType dtype_;
  const DeviceStream stream_;
  EventPool events_;
  std::vector<void*> memory_;
};

// `steps` training steps of a plan: `arrays[rank][tensor]` is reduced in place, step after step, each rank bringing its
// tensors in another order in every step. Tensors of `on_host[rank][tensor]` lie in host memory. Rank r uses GPU
// `device_of_rank[r]`. In the first step `last_rank` brings its first tensor after the others, and the rest when those
// wait for it. Returns what each rank was told: "" for no error.
std::vector<std::string> Steps(const std::vector<std::string>& hosts, const std::vector<std::vector<Bytes>>& arrays,
                               const std::vector<std::vector<bool>>& on_host, const std::vector<int>& device_of_rank,
                               const std::string& dtype_name, const std::string& wire_dtype, int op, double prescale,
                               double postscale, int64_t chunk_bytes, int64_t bucket_bytes, const std::string& stage,
                               int steps, bool planned, int last_rank) {
  DevicePlugin* const plugin = ValueOrThrow(TheDevices().plugin());
  const DType dtype = ValueOrThrow(DTypeFromName(dtype_name));
  ClusterOptions options;
  options.host_of_rank = hosts;
  options.chunk_bytes = chunk_bytes;
  options.bucket_bytes = bucket_bytes;
  options.gpu_stage = stage;
  auto cluster = ValueOrThrow(StartInprocCluster(options));
  const int size = cluster->size();
  std::deque<FrameworkOfRank> frameworks;
  std::vector<std::string> told(size);
  std::vector<int> ranks(size);
  std::iota(ranks.begin(), ranks.end(), 0);
  if (last_rank >= 0) std::swap(ranks.at(last_rank), ranks.back());
  PlanSpec spec;
  spec.key = "on GPUs";
  for (const Bytes& array : arrays[0]) {
    spec.tensors.push_back({dtype, {static_cast<int64_t>(array.size() / SizeOf(dtype))}});
  }
  spec.op = static_cast<ReduceOp>(op);
  spec.prescale = prescale;
  spec.postscale = postscale;
  spec.wire_dtype = ValueOrThrow(WireDTypeFromName(wire_dtype));
  std::vector<int> plans;
  for (int rank = 0; rank < size; ++rank) {
    frameworks.emplace_back(*ValueOrThrow(plugin->Open(device_of_rank[rank])), arrays[rank], on_host[rank], dtype);
    if (planned) plans.push_back(ValueOrThrow(cluster->session(rank).RegisterPlan(spec)));
  }
  for (int step = 0; step < steps; ++step) {
    std::vector<std::list<Waiter>> waiters(size);
    for (const int rank : ranks) {
      FrameworkOfRank& framework = frameworks[rank];
      framework.Compute();
      std::vector<TensorRef> tensors;
      for (size_t i = 0; i < spec.tensors.size(); ++i) {
        const size_t index = (i + rank + step) % spec.tensors.size();
        if (rank == last_rank && step == 0 && i == 1) usleep(100'000);
        if (planned) {
          cluster->session(rank).ReducePlanned({plans[rank], static_cast<int>(index)}, framework.Tensor(index),
                                               waiters[rank].emplace_back().callback());
        } else {
          tensors.push_back(framework.Tensor(i));
        }
      }
      if (!planned) {
        cluster->session(rank).Submit({RequestKind::kAllreduce, "on GPUs", tensors, spec},
                                      waiters[rank].emplace_back().callback());
      }
    }
    for (const int rank : ranks) {
      for (Waiter& waiter : waiters[rank]) {
        const Status status = waiter.Wait();
        if (!status.ok()) told[rank] = status.message();
      }
      if (told[rank].empty()) frameworks[rank].Use();
    }
    {
      nb::gil_scoped_release release;
      for (FrameworkOfRank& framework : frameworks) framework.Synchronize();
    }
  }
  return told;
}

}  // namespace

void BindDeviceCluster(nb::module_& m) {
  m.def("cluster_gpu_steps", &Steps, nb::arg("hosts"), nb::arg("arrays"), nb::arg("on_host"), nb::arg("device_of_rank"),
        nb::arg("dtype"), nb::arg("wire_dtype") = "", nb::arg("op") = 1, nb::arg("prescale") = 1.0,
        nb::arg("postscale") = 1.0, nb::arg("chunk_bytes") = 4096, nb::arg("bucket_bytes") = 16384,
        nb::arg("stage") = "auto", nb::arg("steps") = 1, nb::arg("planned") = true, nb::arg("last_rank") = -1);
}

}  // namespace smddp
