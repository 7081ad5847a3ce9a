// The fabrics of all ranks of a job: nodes share memory, nodes talk through mailboxes; one thread steps all of them.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "inproc/hub.h"
#include "native/ranks.h"
#include "native/tasks.h"

namespace smddp {

class Fabrics {
 public:
  explicit Fabrics(const Hosts& hosts, int64_t chunk_bytes = 4096) : hub(static_cast<int>(hosts.size())) {
    Env env;
    env.chunk_bytes = chunk_bytes;
    env.cpu_isa = "auto";
    const auto memory = std::make_shared<std::vector<std::unique_ptr<Segment>>>();
    std::vector<Topology> topologies;
    for (size_t rank = 0; rank < hosts.size(); ++rank) {
      topologies.push_back(Value(Topology::Build(static_cast<int>(rank), hosts)));
      memory->push_back(Value(Segment::Private(FabricParts::LayoutFor(topologies.back(), env).total_bytes)));
    }
    for (Topology& topology : topologies) {
      const int rank = topology.rank();
      std::vector<std::byte*> segments;
      for (const int member : topology.node().world_ranks()) segments.push_back((*memory)[member]->data());
      parts.push_back(std::make_unique<FabricParts>(std::move(topology), env, RailChoice(), std::move(segments), memory,
                                                    std::make_unique<InprocTransport>(hub, rank)));
    }
  }
  int size() const { return static_cast<int>(parts.size()); }
  const Fabric& of(int rank) const { return parts[rank]->fabric(); }

  // Steps the tasks, one for each rank (null: none), until they are done.
  void Run(std::vector<TaskPtr> tasks) {
    std::vector<Transport*> transports;
    for (const auto& each : parts) transports.push_back(&each->transport());
    RunTasks(std::move(tasks), transports, /*patience=*/20);
  }

  InprocHub hub;
  std::vector<std::unique_ptr<FabricParts>> parts;
};

}  // namespace smddp
