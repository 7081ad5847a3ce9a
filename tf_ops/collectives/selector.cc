#include "collectives/selector.h"

#include "collectives/fabric.h"

namespace smddp {
namespace {

constexpr double kClearly = 0.9;  // of the default's time

}  // namespace

double PredictSeconds(const AlgorithmInfo& info, int members, int64_t bytes, const LinkSpeed& link) {
  const AlgorithmCost cost = info.cost(members);
  return cost.steps * link.latency_s + cost.messages * link.message_s +
         cost.traffic * static_cast<double>(bytes) / link.bytes_per_s;
}

const AllreduceAlgorithm& CheapestAlgorithm(int members, int64_t bytes, DType dtype, const LinkSpeed& link) {
  const AllreduceAlgorithm* best = Algorithms().front();
  if (IsHalf(dtype)) return *best;
  double least = kClearly * PredictSeconds(best->info(), members, bytes, link);
  for (const AllreduceAlgorithm* other : Algorithms()) {
    if (other->info().order != Algorithms().front()->info().order) continue;
    const double seconds = PredictSeconds(other->info(), members, bytes, link);
    if (seconds >= least) continue;
    best = other;
    least = seconds;
  }
  return *best;
}

const AllreduceAlgorithm& RailAlgorithmFor(const Fabric& fabric, int64_t elements, DType dtype) {
  if (fabric.rail.by_name != nullptr) return *fabric.rail.by_name;
  const int rails = fabric.topology.rail_count();
  const int64_t of_rail = (elements + rails - 1) / rails;
  const int64_t bytes = of_rail * static_cast<int64_t>(SizeOf(dtype));
  return CheapestAlgorithm(fabric.topology.node_count(), bytes, dtype, fabric.rail.link);
}

}  // namespace smddp
