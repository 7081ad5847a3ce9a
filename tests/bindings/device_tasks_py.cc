// Test access to buckets on GPUs without sessions: ranks are threads.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bindings/bind.h"
#include "bindings/device_rank.h"
#include "inproc/hub.h"
#include "python/errors.h"
#include "runtime/gpu/devices.h"
#include "transport/shm/segment.h"

namespace nb = nanobind;

namespace smddp {
namespace {

using Bytes = nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// Every rank's error, or "".
std::vector<std::string> RunAll(const DeviceJob& job, const std::vector<std::string>& hosts,
                                const std::vector<Bytes>& data) {
  const int size = static_cast<int>(hosts.size());
  Env env;
  env.chunk_bytes = job.chunk_bytes;
  env.cpu_isa = "auto";
  InprocHub hub(size);
  const auto memory = std::make_shared<std::vector<std::unique_ptr<Segment>>>();
  std::vector<Topology> topologies;
  for (int rank = 0; rank < size; ++rank) {
    topologies.push_back(ValueOrThrow(Topology::Build(rank, hosts)));
    memory->push_back(ValueOrThrow(Segment::Private(FabricParts::LayoutFor(topologies[rank], env).total_bytes)));
  }
  std::vector<std::string> ids(size);
  for (const Group& node : topologies[0].nodes()) {
    const int first = node.world_rank(0);
    if (job.method == DeviceMethod::kHost || (job.method == DeviceMethod::kAll && first > 0)) continue;
    ids[first] = ValueOrThrow(ValueOrThrow(TheDevices().groups())->MakeId());
  }
  DeviceMeeting meeting(size);
  std::vector<std::unique_ptr<DeviceRank>> ranks;
  for (int rank = 0; rank < size; ++rank) {
    std::vector<std::byte*> segments;
    for (const int member : topologies[rank].node().world_ranks()) segments.push_back((*memory)[member]->data());
    auto parts = std::make_unique<FabricParts>(topologies[rank], env, RailChoice(), std::move(segments), memory,
                                               std::make_unique<InprocTransport>(hub, rank));
    ranks.push_back(std::make_unique<DeviceRank>(job, std::move(parts), meeting,
                                                 reinterpret_cast<std::byte*>(data[rank].data()), data[rank].size()));
  }
  std::vector<std::string> errors(size);
  {
    nb::gil_scoped_release release;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        const Status status = ranks[rank]->Run(ids);
        if (!status.ok()) errors[rank] = status.message();
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  return errors;
}

DeviceMethod MethodNamed(const std::string& name) {
  for (const DeviceMethod method : {DeviceMethod::kHost, DeviceMethod::kNode, DeviceMethod::kAll}) {
    if (name == NameOf(method)) return method;
  }
  throw nb::value_error(("There is no method " + name).c_str());
}

std::vector<std::string> Run(const std::vector<std::string>& hosts, const std::string& stage, const std::string& dtype,
                             const std::string& wire, int op, double prescale, double postscale, int divisor,
                             const std::vector<std::vector<int64_t>>& buckets, const std::vector<Bytes>& data,
                             const std::vector<std::vector<int>>& orders,
                             const std::vector<std::vector<int>>& in_host_memory, const std::vector<int>& devices,
                             int64_t chunk_bytes, int steps, int pause_us, double seconds) {
  DeviceJob job;
  job.method = MethodNamed(stage);
  job.dtype = ValueOrThrow(DTypeFromName(dtype));
  job.wire = ValueOrThrow(DTypeFromName(wire));
  job.op = static_cast<ReduceOp>(op);
  job.before = {prescale, 1};
  job.after = {postscale, divisor};
  job.buckets = buckets;
  job.orders = orders;
  job.in_host_memory = in_host_memory;
  job.devices = devices;
  job.chunk_bytes = chunk_bytes;
  job.steps = steps;
  job.pause_us = pause_us;
  job.seconds = seconds;
  job.rail = Algorithms().front();
  return RunAll(job, hosts, data);
}

}  // namespace

void BindDeviceTasks(nb::module_& m) {
  m.def("device_run", &Run, nb::arg("hosts"), nb::arg("stage"), nb::arg("dtype"), nb::arg("wire"), nb::arg("op"),
        nb::arg("prescale"), nb::arg("postscale"), nb::arg("divisor"), nb::arg("buckets"), nb::arg("data"),
        nb::arg("orders"), nb::arg("in_host_memory"), nb::arg("devices"), nb::arg("chunk_bytes"), nb::arg("steps"),
        nb::arg("pause_us"), nb::arg("seconds"));
}

}  // namespace smddp
