// Which algorithm the rail stage of an operation uses: named by the user, or chosen. Pure functions.
//
//   1. Large sums of a few nodes on a slow network use the ring: one sender per receiver at any time. With the others
//      several senders share a receiver, which cost 3 to 10 % on the links where it was measured (docs/decisions/0007).
//   2. Else the cheapest by
//        seconds = steps * latency + messages * (time to send one) + traffic * bytes / bandwidth
//      of all chunks: each costs its messages, and the latency is waited for once for those that are in flight
//      together.
//
// The figures of the link are measured when the session starts; the worst of all ranks count, so every rank makes the
// same choice. Sums should not depend on a measurement: step 2 chooses only among algorithms that give the same bits
// (SumOrder), and the limit of step 1 lies between the usual network speeds. For float16 and bfloat16 the default is
// chosen, which rounds once.
#pragma once

#include <cstdint>

#include "collectives/rail/algorithm.h"
#include "core/wire.h"

namespace smddp {

struct Fabric;

// Between two nodes, for one rail while all of a node's rails are busy.
struct LinkSpeed {
  double latency_s = 20e-6;
  double message_s = 1e-6;
  double bytes_per_s = 1e9;

  SMDDP_FIELDS(latency_s, message_s, bytes_per_s);
};

struct RailChoice {
  const AllreduceAlgorithm* by_name = nullptr;  // null: to be chosen
  LinkSpeed link;
};

// The work of one rail.
struct RailLoad {
  int members = 1;
  int rails = 1;            // that share a node's link
  int64_t bytes = 0;        // of data on each member
  int64_t chunk_bytes = 0;  // of them that travel together; 0: all
  DType dtype = DType::kFloat32;
  // The same elements may be at other positions in the next run (gradients in the order in which they became ready).
  // Then only algorithms that add in the same order at every position are reproducible.
  bool places_vary = false;
};

// Bytes per second that a node sends to others, over all its rails; infinite where there is one node.
double NodeRate(const Fabric& fabric);

double PredictSeconds(const AllreduceAlgorithm& algorithm, const RailLoad& load, const LinkSpeed& link);

const AllreduceAlgorithm& ChooseAlgorithm(const RailLoad& load, const LinkSpeed& link);

// For an operation of `elements` elements in all.
const AllreduceAlgorithm& RailAlgorithmFor(const Fabric& fabric, int64_t elements, DType dtype, bool places_vary);

// Does the order of a sum depend on an element's position, with the algorithm that the user named?
bool SumsDependOnPlace(const Fabric& fabric);

}  // namespace smddp
