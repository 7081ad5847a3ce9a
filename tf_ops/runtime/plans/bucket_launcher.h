// From a complete bucket to the task that reduces it: the only class that knows whether its tensors lie in host
// memory or on GPUs, and whether the result is checked.
//
// Threads: the engine's.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "collectives/fabric.h"
#include "collectives/hierarchical.h"
#include "collectives/node/parts.h"
#include "collectives/rail/algorithm.h"
#include "runtime/control/component.h"
#include "runtime/control/scalings.h"
#include "runtime/gpu/device_paths.h"
#include "runtime/plans/plan.h"
#include "runtime/verify/verify.h"

namespace smddp {

class BucketLauncher {
 public:
  // All outlive it.
  BucketLauncher(ControlBus& bus, const Fabric& fabric, const Verifier& verifier, DevicePaths& device_paths)
      : bus_(bus), fabric_(fabric), verifier_(verifier), device_paths_(device_paths) {}

  // Have the ranks agreed on how this bucket is reduced? Starts the agreement if necessary; DevicePaths reports when
  // it is reached.
  bool CanLaunch(const Plan& plan, const PlannedBucket& bucket);
  // Runs the reduction of `arrivals`, one for each slot of the bucket, which have waited since `since_ns`. `plan`,
  // `bucket` and `arrivals` outlive it. `done` is called when all have their results.
  void Launch(const Plan& plan, const PlannedBucket& bucket, std::shared_ptr<std::vector<Arrival>> arrivals,
              int64_t since_ns, DoneCallback done);
  // The algorithm between nodes.
  const AllreduceAlgorithm& RailFor(const Plan& plan, const Bucket& bucket, int64_t elements) const;

 private:
  std::unique_ptr<FusedView> ViewOf(const Parting& parting, const Bucket& bucket, const std::vector<Arrival>& arrivals,
                                    const Scalings& scalings) const;
  TaskPtr Begin(const Plan& plan, const PlannedBucket& bucket, const FusedCall& call,
                const std::vector<Arrival>& arrivals);
  // What to check. Nothing without SMDDP_VERIFY, and nothing of tensors on GPUs or of parts.
  std::optional<VerifiedCall> Describe(const Plan& plan, const PlannedBucket& bucket,
                                       const std::vector<Arrival>& arrivals) const;
  void RecordTensors(TraceWhat what, const Plan& plan, const PlannedBucket& bucket);
  void RecordDone(const Plan& plan, const PlannedBucket& bucket, const StageTimes* times);

  ControlBus& bus_;
  const Fabric& fabric_;
  const Verifier& verifier_;
  DevicePaths& device_paths_;
};

}  // namespace smddp
