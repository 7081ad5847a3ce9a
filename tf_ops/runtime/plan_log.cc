// What the log says of a plan, at level debug.
#include <set>

#include "core/log.h"
#include "runtime/plan_table.h"

namespace smddp {

void PlanTable::LogAgreed(const Plan& plan) const {
  if (!Logs(LogLevel::kDebug)) return;
  const Epoch& epoch = plan.epochs.back();
  int64_t bytes = 0;
  std::set<std::string> algorithms;
  for (const PlannedBucket& bucket : epoch.layout.buckets()) {
    bytes += bucket.bucket.wire_bytes();
    if (fabric_.topology.node_count() == 1) continue;
    algorithms.insert(RailFor(plan, epoch, bucket.bucket.elements, bucket.bucket.wire_dtype).info().name);
  }
  std::string between;
  for (const std::string& name : algorithms) between += (between.empty() ? "; between nodes " : ", ") + name;
  const bool in_order = plan.ordered && epoch.start > 0;
  Log(LogLevel::kDebug, plan.name + (in_order ? " goes on in the order that rank 0 has told" : " is agreed on") + ": " +
                            std::to_string(plan.spec.tensors.size()) + " gradients of " + std::to_string(bytes) +
                            " bytes, fusion buckets: " + std::to_string(epoch.layout.buckets().size()) + between);
}

}  // namespace smddp
