#include "collectives/hierarchical.h"

#include <algorithm>
#include <utility>

#include "collectives/node/stages.h"
#include "collectives/slice_exchange.h"

namespace smddp {
namespace {

// Records when `task` begins and ends.
TaskPtr Timed(const Chunk& chunk, StageTimes::Stage stage, TaskPtr task, bool begins = true) {
  StageTimes* const times = chunk.call.times;
  if (times == nullptr || task == nullptr) return task;
  if (begins) times->Mark(stage);
  const auto whole = std::make_shared<TaskPtr>(std::move(task));
  const auto end = [times, stage]() -> TaskPtr {
    times->Mark(stage);
    return nullptr;
  };
  return Sequence({[whole] { return std::move(*whole); }, end});
}

// Gathers the sub-blocks of my slice from the nodes that share my parts.
TaskPtr RailGather(const Fabric& fabric, const RailCall& call, std::vector<int> ranks) {
  const auto group = std::make_shared<const Group>(std::move(ranks));
  const SliceExchange exchange(*group, fabric.topology.rank(), call);
  return InStages("gather between nodes", fabric.transport,
                  {[group, exchange](Transfers* transfers) { return exchange.Gather(transfers); }});
}

TaskPtr RailStage(const Fabric& fabric, const AllreduceAlgorithm& rail, const Chunk& chunk) {
  if (!chunk.crosses_nodes()) return nullptr;
  const FusedCall& of = chunk.call;
  RailCall call = {
      of.operation, static_cast<uint16_t>(chunk.index), chunk.sum, chunk.my_slice().size(), of.view->wire(), of.op};
  const int nodes = chunk.nodes_of_group();
  if (chunk.gathers()) {
    const auto first = fabric.topology.rail().world_ranks().begin() + fabric.topology.node_index() / nodes * nodes;
    return RailGather(fabric, call, std::vector<int>(first, first + nodes));
  }
  call.need_every = nodes;
  if (of.errors != nullptr) call.errors = of.errors->Of(chunk.index, call.elements);
  const AllreduceAlgorithm& algorithm = nodes > 1 && rail.exact ? *AlgorithmByName("direct") : rail;
  return algorithm.Begin(fabric.topology.rail(), fabric.topology.rank(), fabric.transport, fabric.compute, call);
}

TaskPtr ReduceMySlice(const Fabric& fabric, const AllreduceAlgorithm& rail, const std::shared_ptr<Chunk>& chunk) {
  return Sequence({
      [chunk] { return Timed(*chunk, StageTimes::kNodeReduceScatter, SumMySlice(chunk)); },
      [&fabric, &rail, chunk] { return Timed(*chunk, StageTimes::kRailAllreduce, RailStage(fabric, rail, *chunk)); },
      [chunk] { return Timed(*chunk, StageTimes::kNodeAllgather, PublishSum(chunk)); },
      [chunk] { return AwaitReaders(chunk, &chunk->slot); },
  });
}

TaskPtr AllreduceChunk(const Fabric& fabric, const AllreduceAlgorithm& rail, const std::shared_ptr<Chunk>& chunk) {
  return Sequence({
      [chunk] { return Timed(*chunk, StageTimes::kNodeReduceScatter, PublishContribution(chunk)); },
      [&fabric, &rail, chunk] {
        std::vector<TaskPtr> branches;
        if (!chunk->my_slice().empty()) branches.push_back(ReduceMySlice(fabric, rail, chunk));
        // The task waits from the start, but its stage begins with the first sum.
        branches.push_back(Timed(*chunk, StageTimes::kNodeAllgather, CollectSums(chunk), /*begins=*/false));
        // On its own: the slot is needed by other chunks, for which this one may wait.
        if (TaskPtr readers = AwaitReaders(chunk, &chunk->contribution)) branches.push_back(std::move(readers));
        return Parallel(std::move(branches));
      },
  });
}

}  // namespace

TaskPtr InChunks(const Fabric& fabric, int64_t elements, DType wire,
                 std::function<TaskPtr(int index, Range range)> chunk, int64_t chunk_elements) {
  const int64_t fitting = std::max<int64_t>(1, fabric.chunk_bytes / static_cast<int64_t>(SizeOf(wire)));
  const int64_t each = chunk_elements > 0 ? chunk_elements : fitting;
  const int chunks = static_cast<int>((elements + each - 1) / each);
  return Pipeline(chunks, ChunksInFlight(fabric.topology), [chunk = std::move(chunk), elements, each](int index) {
    return chunk(index, {index * each, std::min(elements, (index + 1) * each)});
  });
}

TaskPtr HierarchicalAllreduce(const Fabric& fabric, const AllreduceAlgorithm& rail, const FusedCall& call) {
  const auto chunk = [&fabric, &rail, call](int index, Range range) {
    const auto begin = [&fabric, &rail, call, index, range] {
      return AllreduceChunk(fabric, rail, std::make_shared<Chunk>(fabric, call, index, range));
    };
    return call.gate != nullptr ? Gated(*call.gate, range, begin) : begin();
  };
  return InChunks(fabric, call.view->elements(), call.view->wire(), chunk, call.view->chunk_elements());
}

}  // namespace smddp
