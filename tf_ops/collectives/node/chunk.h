// One chunk of a fused allreduce inside the node: its range of the data, who reduces which slice of it, and where the
// sum of my slice is stored.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "collectives/fabric.h"
#include "collectives/gate.h"
#include "compute/fused_view.h"
#include "core/clock.h"
#include "core/slice.h"

namespace smddp {

// When the stages of one fused allreduce ran, over all of its chunks. Recorded on request only.
struct StageTimes {
  enum Stage : int { kNodeReduceScatter = 0, kRailAllreduce = 1, kNodeAllgather = 2, kStages = 3 };
  static const char* NameOf(int stage) {
    constexpr const char* kNames[] = {"NODE_REDUCE_SCATTER", "RAIL_ALLREDUCE", "NODE_ALLGATHER"};
    return kNames[stage];
  }

  // CLOCK_MONOTONIC; 0: the stage has not run.
  int64_t first_ns[kStages] = {}, last_ns[kStages] = {};

  void Mark(Stage stage) {
    last_ns[stage] = NowNs();
    if (first_ns[stage] == 0) first_ns[stage] = last_ns[stage];
  }
};

// What 8-bit exchanges (rail/quantised_exchange.h) have rounded away from the sums of one bucket on this rank.
// Threads: the engine's.
class RoundingErrors {
 public:
  // Of chunk `chunk`, of which this rank exchanges `elements`: zeros at first, and after a change of that number.
  float* Of(int chunk, int64_t elements) {
    if (by_chunk_.size() <= static_cast<size_t>(chunk)) by_chunk_.resize(chunk + 1);
    std::vector<float>& errors = by_chunk_[chunk];
    if (errors.size() != static_cast<size_t>(elements)) errors.assign(elements, 0.0f);
    return errors.data();
  }

 private:
  std::vector<std::vector<float>> by_chunk_;
};

// The allreduce that a chunk belongs to. The view outlives the task.
struct FusedCall {
  uint32_t operation = 0;
  const FusedView* view = nullptr;
  ReduceOp op = ReduceOp::kSum;
  StageTimes* times = nullptr;       // outlives the task
  ChunkGate* gate = nullptr;         // outlives the task; null: all data are available
  RoundingErrors* errors = nullptr;  // of QuantisedExchange; outlives the task; null: none are kept
};

struct Chunk {
  Chunk(const Fabric& fabric, const FusedCall& call, int index, Range range)
      : fabric(fabric), call(call), index(index), range(range) {}

  const Fabric& fabric;
  const FusedCall call;
  const int index;
  const Range range;  // of the view

  // The sum of my slice. In shared memory when only my node needs it; else in private memory until the rail stage is
  // done: a rank that waits for another node must not hold a slot that its own node needs to make progress.
  Slot slot;
  std::unique_ptr<std::byte[]> private_memory;
  BufferView sum;
  // Set where the slot refers to my outputs; then `sum` is not in it.
  std::unique_ptr<SlotWriter> result;
  // Set while it refers to my inputs.
  Slot contribution;

  size_t element_size() const { return SizeOf(call.view->wire()); }
  size_t bytes_of(Range of) const { return static_cast<size_t>(of.size()) * element_size(); }
  int me() const { return fabric.node.position(); }
  Tag tag(uint8_t stage) const { return {call.operation, stage, static_cast<uint16_t>(index)}; }
  bool gathers() const { return call.view->parting().mode == PartMode::kGather; }
  // Can the others read this piece of an input or output where it is? Not what is not there (null).
  bool Shares(const void* data, Range of) const {
    return data != nullptr && bytes_of(of) >= kLeastReferredBytes && fabric.node.Shares(data, bytes_of(of));
  }
  // The local ranks that share the chunk: those of the smallest node; of a gather, those of my group.
  int reducers() const {
    return gathers() ? std::min(call.view->parting().parts, fabric.node.size()) : fabric.topology.rail_count();
  }
  int first_reducer() const { return gathers() ? me() / reducers() * reducers() : 0; }
  // The part of the view that `reducer` (a local rank) sums; empty for ranks that are not reducers.
  Range slice_of(int reducer) const {
    const int index = reducer - first_reducer();
    if (index < 0 || index >= reducers()) return {range.end, range.end};
    const Range inside = SliceOf(range.size(), element_size(), reducers(), index);
    return {range.begin + inside.begin, range.begin + inside.end};
  }
  Range my_slice() const { return slice_of(me()); }
  bool crosses_nodes() const { return gathers() ? nodes_of_group() > 1 : fabric.topology.node_count() > 1; }
  // The number of nodes over which a part's group of ranks is spread.
  int nodes_of_group() const { return std::max(1, call.view->parting().parts / fabric.node.size()); }
  // The other members of my node that reduce a part of this chunk; those whose contributions I sum; those whose sums
  // I need; and those that need mine.
  std::vector<int> other_reducers() const {
    std::vector<int> others;
    for (int reducer = first_reducer(); reducer < first_reducer() + reducers(); ++reducer) {
      if (reducer != me() && !slice_of(reducer).empty()) others.push_back(reducer);
    }
    return others;
  }
  std::vector<int> contributors() const { return gathers() ? std::vector<int>() : fabric.node.others(); }
  std::vector<int> sources() const {
    if (call.view->parting().mode != PartMode::kReduce) return other_reducers();
    std::vector<int> of_my_place;
    for (int member : fabric.node.others()) {
      if ((member - me()) % call.view->parting().parts == 0) of_my_place.push_back(member);
    }
    return of_my_place;
  }
  std::vector<int> readers() const { return whole() ? fabric.node.others() : sources(); }

 private:
  bool whole() const { return call.view->parting().mode == PartMode::kWhole; }
};

}  // namespace smddp
