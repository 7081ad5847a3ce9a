#include "collectives/rail/selector.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "collectives/fabric.h"

namespace smddp {
namespace {

// Fraction of the default's time below which another algorithm is chosen. From 8 nodes on, the default's many flows
// hold one another up, more so when nodes are late, which the prediction does not contain (docs/decisions/0023).
constexpr double kClearly = 0.9, kClearlyOfMany = 1.15;
constexpr int kManyNodes = 8;
constexpr double kSlowNode = 3e9 / 8;       // bytes per second: between 1 and 10 Gbit/s
constexpr int kFewNodes = 16;               // a ring has 2 (P - 1) steps
constexpr int64_t kRingMessage = 16 << 10;  // for shorter messages the cost per message dominates

bool PrefersRing(const RailLoad& load, const LinkSpeed& link) {
  return !load.places_vary && load.members > 2 && load.members <= kFewNodes &&
         load.rails * link.bytes_per_s < kSlowNode && load.bytes >= load.members * kRingMessage;
}

}  // namespace

double PredictSeconds(const AllreduceAlgorithm& algorithm, const RailLoad& load, const LinkSpeed& link) {
  const AlgorithmCost cost = algorithm.cost(load.members);
  const int64_t of_chunk = load.chunk_bytes > 0 ? load.chunk_bytes : std::max<int64_t>(load.bytes, 1);
  const auto chunks = static_cast<double>(std::max<int64_t>(1, (load.bytes + of_chunk - 1) / of_chunk));
  return std::ceil(chunks / kMaxStepsInFlight) * cost.steps * link.latency_s + chunks * cost.messages * link.message_s +
         cost.traffic * static_cast<double>(load.bytes) / link.bytes_per_s;
}

const AllreduceAlgorithm& ChooseAlgorithm(const RailLoad& load, const LinkSpeed& link) {
  const AllreduceAlgorithm* const by_default = Algorithms().front();
  const AllreduceAlgorithm* best = by_default;
  if (IsHalf(load.dtype)) return *best;
  if (PrefersRing(load, link)) return *AlgorithmByName("ring");
  const double clearly = load.members < kManyNodes ? kClearly : kClearlyOfMany;
  double least = clearly * PredictSeconds(*best, load, link);
  for (const AllreduceAlgorithm* other : Algorithms()) {
    if (other == by_default || other->order != by_default->order) continue;
    const double seconds = PredictSeconds(*other, load, link);
    if (seconds >= least) continue;
    best = other;
    least = seconds;
  }
  return *best;
}

const AllreduceAlgorithm& RailAlgorithmFor(const Fabric& fabric, int64_t elements, DType dtype, bool places_vary) {
  if (fabric.rail.by_name != nullptr) return *fabric.rail.by_name;
  const int rails = fabric.topology.rail_count();
  const int64_t of_rail = (elements + rails - 1) / rails;
  const int64_t bytes = of_rail * static_cast<int64_t>(SizeOf(dtype));
  const int64_t of_chunk = fabric.chunk_bytes / rails;
  return ChooseAlgorithm({fabric.topology.node_count(), rails, bytes, of_chunk, dtype, places_vary}, fabric.rail.link);
}

double NodeRate(const Fabric& fabric) {
  const bool alone = fabric.topology.node_count() == 1;
  return alone ? std::numeric_limits<double>::infinity() : fabric.rail.link.bytes_per_s * fabric.topology.rail_count();
}

bool SumsDependOnPlace(const Fabric& fabric) {
  return fabric.rail.by_name != nullptr && fabric.rail.by_name->order == SumOrder::kRing &&
         fabric.topology.node_count() > 2;
}

}  // namespace smddp
