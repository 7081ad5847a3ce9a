// Test access to the algorithms between nodes, one by one and without an engine, and to the choice among them.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bindings/bind.h"
#include "collectives/rail/algorithm.h"
#include "collectives/rail/quantised_exchange.h"
#include "collectives/rail/selector.h"
#include "compute/compute.h"
#include "fusion/plan.h"
#include "inproc/hub.h"
#include "python/errors.h"
#include "transport/shm/node_layout.h"

namespace nb = nanobind;

namespace smddp {
namespace {

using Bytes = nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

const AllreduceAlgorithm& Named(const std::string& name) {
  if (name == "int8") return QuantisedExchange();
  const AllreduceAlgorithm* algorithm = AlgorithmByName(name);
  if (algorithm == nullptr) throw nb::value_error(("There is no algorithm '" + name + "'.").c_str());
  return *algorithm;
}

// One member of the group: its transport, and what it does.
struct Member {
  std::unique_ptr<InprocTransport> transport;
  TaskPtr task;
};

// Steps all members in turn until all are done.
void RunAll(std::vector<Member>* members) {
  size_t done = 0;
  for (int idle = 0; done < members->size();) {
    bool moved = false;
    for (Member& member : *members) {
      moved |= ValueOrThrow(member.transport->Progress());
      if (member.task == nullptr) continue;
      const Progress progress = ValueOrThrow(member.task->Step());
      moved |= progress != Progress::kWaiting;
      if (progress != Progress::kDone) continue;
      member.task.reset();
      ++done;
    }
    idle = moved ? 0 : idle + 1;
    if (idle > 2) throw EngineError(Status(Reason::kInternal, "The members wait for one another."));
  }
}

// Sums `arrays[m]`, the data of member m, in place; world rank 10 + m. What every member sent, each message as (to,
// bytes, length of the longest chain of messages before it), and the length of the longest chain in all. `errors`:
// RailCall::errors of each member, or none.
nb::list Run(const std::string& name, const std::vector<Bytes>& arrays, const std::string& dtype_name, int op,
             const std::vector<Bytes>& errors) {
  const int size = static_cast<int>(arrays.size());
  RailCall call;
  call.dtype = ValueOrThrow(DTypeFromName(dtype_name));
  call.op = static_cast<ReduceOp>(op);
  constexpr int kFirstRank = 10;  // members are not numbered like ranks
  std::vector<int> ranks;
  for (int member = 0; member < size; ++member) ranks.push_back(kFirstRank + member);
  const Group group(ranks);
  InprocHub hub(kFirstRank + size);
  std::vector<Member> members;
  for (int member = 0; member < size; ++member) {
    auto transport = std::make_unique<InprocTransport>(hub, ranks[member]);
    call.data = {arrays[member].data(), arrays[member].size()};
    call.elements = static_cast<int64_t>(arrays[member].size() / SizeOf(call.dtype));
    call.errors = errors.empty() ? nullptr : reinterpret_cast<float*>(errors[member].data());
    TaskPtr task = Named(name).Begin(group, ranks[member], *transport, CpuCompute(), call);
    members.push_back({std::move(transport), std::move(task)});
  }
  RunAll(&members);
  nb::list counts;
  for (const Member& member : members) {
    nb::dict row;
    row["bytes"] = member.transport->bytes_sent();
    nb::list sent;
    for (const InprocTransport::Sent& message : member.transport->sent()) {
      sent.append(nb::make_tuple(message.to - kFirstRank, message.bytes, message.after));
    }
    row["sent"] = sent;
    row["steps"] = member.transport->depth();
    counts.append(row);
  }
  return counts;
}

nb::tuple CostOf(const std::string& name, int members) {
  const AlgorithmCost cost = Named(name).cost(members);
  return nb::make_tuple(cost.steps, cost.messages, cost.traffic);
}

std::string Choose(int members, int rails, int64_t bytes, const std::string& dtype, double latency_s, double message_s,
                   double bytes_per_s, bool places_vary, int64_t chunk_bytes) {
  const LinkSpeed link = {latency_s, message_s, bytes_per_s};
  const DType of_data = ValueOrThrow(DTypeFromName(dtype));
  return ChooseAlgorithm({members, rails, bytes, chunk_bytes, of_data, places_vary}, link).name;
}

int64_t BucketBytes(const std::vector<int64_t>& elements, const std::string& wire_dtype, int nodes) {
  PlanSpec spec;
  for (const int64_t each : elements) spec.tensors.push_back({DType::kFloat32, {each}});
  spec.wire_dtype = ValueOrThrow(WireDTypeFromName(wire_dtype));
  return BucketBytesFor(spec, nodes);
}

}  // namespace

void BindRail(nb::module_& m) {
  m.def("rail_run", &Run, nb::arg("algorithm"), nb::arg("arrays"), nb::arg("dtype"), nb::arg("op"),
        nb::arg("errors") = std::vector<Bytes>());
  m.def("rail_cost", &CostOf, nb::arg("algorithm"), nb::arg("members"));
  m.def("rail_choose", &Choose, nb::arg("members"), nb::arg("rails"), nb::arg("bytes"), nb::arg("dtype"),
        nb::arg("latency_s"), nb::arg("message_s"), nb::arg("bytes_per_s"), nb::arg("places_vary") = false,
        nb::arg("chunk_bytes") = 0);
  m.def("default_chunk_bytes", &DefaultChunkBytes, nb::arg("pieces"));
  m.def("bucket_bytes_for", &BucketBytes, nb::arg("elements"), nb::arg("wire_dtype"), nb::arg("nodes"));
}

}  // namespace smddp
