// The fabrics of all ranks of a job: nodes share memory, nodes talk through mailboxes; one thread steps all of them.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "inproc/hub.h"
#include "native/ranks.h"

namespace smddp {

class Fabrics {
 public:
  explicit Fabrics(const Hosts& hosts, int64_t chunk_bytes = 4096) : hub(static_cast<int>(hosts.size())) {
    Env env;
    env.chunk_bytes = chunk_bytes;
    env.cpu_isa = "auto";
    const auto memory = std::make_shared<std::vector<Segment>>();
    std::vector<Topology> topologies;
    for (size_t rank = 0; rank < hosts.size(); ++rank) {
      topologies.push_back(Value(Topology::Build(static_cast<int>(rank), hosts)));
      memory->push_back(Value(Segment::Private(FabricParts::LayoutFor(topologies.back(), env).total_bytes)));
    }
    for (Topology& topology : topologies) {
      const int rank = topology.rank();
      std::vector<std::byte*> segments;
      for (const int member : topology.node().world_ranks()) segments.push_back((*memory)[member].data());
      parts.push_back(std::make_unique<FabricParts>(std::move(topology), env, RailChoice(), std::move(segments), memory,
                                                    std::make_unique<InprocTransport>(hub, rank)));
    }
  }
  int size() const { return static_cast<int>(parts.size()); }
  const Fabric& of(int rank) const { return parts[rank]->fabric(); }

  // Steps the tasks, one for each rank (null: none), until they are done. `between`: after each round.
  void Run(std::vector<TaskPtr> tasks, const std::function<void()>& between = nullptr) {
    for (int idle = 0; idle < 20;) {
      bool moved = false, left = false;
      for (int rank = 0; rank < size(); ++rank) {
        moved |= Value(parts[rank]->transport().Progress());
        if (tasks[rank] == nullptr) continue;
        const Progress progress = Value(tasks[rank]->Step());
        moved |= progress != Progress::kWaiting;
        if (progress == Progress::kDone) tasks[rank].reset();
        left |= progress != Progress::kDone;
      }
      if (!left) return;
      if (between) between();
      idle = moved ? 0 : idle + 1;
    }
    FAIL("the ranks wait for one another");
  }

  InprocHub hub;
  std::vector<std::unique_ptr<FabricParts>> parts;
};

}  // namespace smddp
