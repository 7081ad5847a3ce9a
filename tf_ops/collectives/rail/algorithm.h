// An allreduce algorithm over point-to-point messages; registry.cc lists them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "collectives/task.h"
#include "compute/compute.h"
#include "topology/topology.h"
#include "transport/transport.h"

namespace smddp {

// `data` is summed in place. Every member of the group makes the same call.
struct RailCall {
  uint32_t operation = 0;
  uint16_t step = 0;  // the chunk's number
  BufferView data;
  int64_t elements = 0;
  DType dtype = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  // DirectExchange and QuantisedExchange: a member needs the sums of those members only that are equal to it modulo
  // `need_every`.
  int need_every = 1;
  // QuantisedExchange: by element of `data`, what was rounded away before; null: nothing is kept.
  float* errors = nullptr;
};

// Cost of the most loaded member, for P members and S bytes of data.
struct AlgorithmCost {
  int steps = 0;       // messages one after another
  int messages = 0;    // sent by one member
  double traffic = 0;  // bytes sent by one member per byte of data
};

// Algorithms with the same order give the same bits (except for float16 and bfloat16, which some round once and some
// at every hop).
enum class SumOrder { kDoubling, kRing };

struct AllreduceAlgorithm {
  using BeginFunction = TaskPtr(const Group& group, int my_rank, Transport& transport, const Compute& compute,
                                const RailCall& call);

  const char* name;
  // docs/algorithms.md lists the figures as formulas; tests/collectives/rail/test_registry.py checks both by counting.
  AlgorithmCost (*cost)(int members);
  SumOrder order;
  std::function<BeginFunction> Begin;
  bool exact = true;  // sends the sums as they are
};

// All algorithms, the default first.
const std::vector<const AllreduceAlgorithm*>& Algorithms();
// Null when there is none with that name.
const AllreduceAlgorithm* AlgorithmByName(const std::string& name);

}  // namespace smddp
