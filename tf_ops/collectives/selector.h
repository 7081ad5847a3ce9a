// Which algorithm the rail stage of an operation uses: by name, or the cheapest by a cost model.
//
//   seconds = steps * latency + messages * (time to send one) + traffic * bytes / bandwidth
//
// The three figures of the link are measured when the session starts and are the worst of all ranks, so that every rank
// chooses alike. Sums must not depend on a measurement: the model chooses only among algorithms that give the same bits
// (SumOrder); float16 and bfloat16 are left to the default, which rounds once.
#pragma once

#include <cstdint>

#include "collectives/algorithm.h"

namespace smddp {

struct Fabric;

// Between two nodes, for one rail while all of a node's rails are busy.
struct LinkSpeed {
  double latency_s = 20e-6;
  double message_s = 1e-6;
  double bytes_per_s = 1e9;
};

struct RailChoice {
  const AllreduceAlgorithm* by_name = nullptr;  // null: the cheapest
  LinkSpeed link;
};

double PredictSeconds(const AlgorithmInfo& info, int members, int64_t bytes, const LinkSpeed& link);

// `bytes` of data on each of `members`. Another than the default must be clearly cheaper.
const AllreduceAlgorithm& CheapestAlgorithm(int members, int64_t bytes, DType dtype, const LinkSpeed& link);

// For an operation of `elements` elements in all.
const AllreduceAlgorithm& RailAlgorithmFor(const Fabric& fabric, int64_t elements, DType dtype);

}  // namespace smddp
