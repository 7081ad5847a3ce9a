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

struct AlgorithmInfo {
  const char* name;
  // The same three figures as formulas for users, and as a function. docs/algorithms.md lists them too, and
  // tests/collectives/rail/test_registry.py checks them by counting.
  const char* steps;
  const char* messages;
  const char* traffic;
  AlgorithmCost (*cost)(int members);
  SumOrder order;
  bool exact = true;  // sends the sums as they are
};

class AllreduceAlgorithm {
 public:
  using BeginFunction = TaskPtr(const Group& group, int my_rank, Transport& transport, const Compute& compute,
                                const RailCall& call);

  AllreduceAlgorithm(const AlgorithmInfo& info, std::function<BeginFunction> begin)
      : Begin(std::move(begin)), info_(info) {}
  const AlgorithmInfo& info() const { return info_; }
  const std::function<BeginFunction> Begin;

 private:
  const AlgorithmInfo info_;
};

// All algorithms, the default first.
const std::vector<const AllreduceAlgorithm*>& Algorithms();
// Null when there is none with that name.
const AllreduceAlgorithm* AlgorithmByName(const std::string& name);

}  // namespace smddp
