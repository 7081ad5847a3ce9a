// Which algorithm the rail stage of an operation uses: by name, or chosen for it. Pure functions.
//
//   1. Large sums of a few nodes on a slow network use the ring: one sender for each receiver at any time. The
//      others make senders meet at a receiver, which cost 3 to 10 % on the links where it was measured
//      (docs/decisions/0007).
//   2. Else the cheapest by
//        seconds = steps * latency + messages * (time to send one) + traffic * bytes / bandwidth
//
// The figures of the link are measured when the session starts and are the worst of all ranks, so every rank chooses
// alike. Sums should not depend on a measurement: step 2 chooses only among algorithms that give the same bits
// (SumOrder), and the border of step 1 lies between the usual speeds of networks. float16 and bfloat16 are left to the
// default, which rounds once.
#pragma once

#include <cstdint>

#include "collectives/rail/algorithm.h"

namespace smddp {

struct Fabric;

// Between two nodes, for one rail while all of a node's rails are busy.
struct LinkSpeed {
  double latency_s = 20e-6;
  double message_s = 1e-6;
  double bytes_per_s = 1e9;
};

struct RailChoice {
  const AllreduceAlgorithm* by_name = nullptr;  // null: to be chosen
  LinkSpeed link;
};

// What one rail has to do.
struct RailLoad {
  int members = 1;
  int rails = 1;      // that share a node's link
  int64_t bytes = 0;  // of data on each member
  DType dtype = DType::kFloat32;
  // The same elements may lie elsewhere in the next run (gradients in the order in which they came). Then only
  // algorithms that add alike at every place give the same bits again.
  bool places_vary = false;
};

double PredictSeconds(const AlgorithmInfo& info, int members, int64_t bytes, const LinkSpeed& link);

const AllreduceAlgorithm& ChooseAlgorithm(const RailLoad& load, const LinkSpeed& link);

// For an operation of `elements` elements in all.
const AllreduceAlgorithm& RailAlgorithmFor(const Fabric& fabric, int64_t elements, DType dtype, bool places_vary);

// Does the order of a sum depend on where an element lies, with the algorithm that is named for everything?
bool SumsDependOnPlace(const Fabric& fabric);

}  // namespace smddp
