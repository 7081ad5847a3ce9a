// Planned matching: gradients are identified by (plan, index). The ranks agree on a plan once, when it is first used.
// From then on a gradient needs no message before its bucket is reduced.
//
// Threads: the engine's, except for the counters.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/env/env.h"
#include "runtime/control/component.h"
#include "runtime/control/messages.h"
#include "runtime/named/named_matching.h"
#include "runtime/planned/bucket_launcher.h"
#include "runtime/planned/bucket_matcher.h"
#include "runtime/planned/plan_stalls.h"
#include "runtime/planned/zero_tensors.h"
#include "runtime/plans/layout_schedule.h"
#include "runtime/plans/plan_registry.h"
#include "runtime/plans/plan_table.h"

namespace smddp {

class PlannedReductions : public Component {
 public:
  // All outlive it.
  PlannedReductions(ControlBus& bus, const Fabric& fabric, const Env& env, const PlanRegistry& registry,
                    NamedMatching& named, DevicePaths& device_paths, const Verifier& verifier);

  // A gradient is ready. True: it begins a step of its plan on this rank.
  bool Reduce(const PlannedTensor& where, const TensorRef& tensor, DoneCallback done);

  PlanTable& plans() { return plans_; }
  const PlanTable& plans() const { return plans_; }
  ZeroTensors& zeros() { return zeros_; }
  const PlanStalls& stalls() const { return stalls_; }
  // By plan: how many steps have begun here; plans without steps are omitted.
  StepCounts Steps() const;
  // Have all gradients been reduced that this rank's program has submitted?
  bool drained() const { return matcher_.unfinished() == zeros_.in_flight(); }
  bool unfinished() const { return matcher_.unfinished() > 0; }
  int64_t buckets_done() const { return matcher_.buckets_done(); }  // any thread

  // hvd.join: begins, with zeros, those of the plan's first `steps` steps that have not begun here. False: there is
  // no such plan. An error: no rank can have begun so many.
  Result<bool> ContributeZeros(const std::string& name, int64_t steps);
  // Adds a plan of the other ranks that was agreed on while this one had joined. An error: it is in use here.
  Status AddForeign(const Verdict& verdict);

  // Contributes zeros for `tensors` in step `step` of the plan, counted from 0.
  void PlaceZeros(Plan* plan, const std::vector<int>& tensors, int64_t step);
  void Forget(Plan* plan);
  // The plan's tensors that arrived while it was kept, to be submitted again.
  std::vector<Plan::KeptArrival> TakeKept(Plan* plan) { return matcher_.TakeKept(plan); }

  Status OnMessage(int from, std::string_view message) override;
  void OnFailure(const Status& why) override;
  bool waiting() const override { return matcher_.waiting() > 0; }
  int64_t OldestNs() const override { return stalls_.OldestNs(); }
  void Describe(std::vector<std::string>* under_way) const override;

 private:
  void Announce(const PlannedTensor& where);
  // Applies the ranks' agreement to the plan. `devices_asked`: as `asked` of DevicePaths::Expect.
  void Adopt(Plan* plan, const Verdict& verdict, bool devices_asked);
  void Decide(const std::string& name, const Status& verdict);
  void TrySendOrder(Plan* plan);
  void Apply(Plan* plan, const PlanOrder& order);
  void LogLayout(const Plan& plan) const;

  ControlBus& bus_;
  const Fabric& fabric_;
  const PlanRegistry& registry_;
  NamedMatching& named_;
  DevicePaths& device_paths_;
  PlanTable plans_;
  BucketLauncher launcher_;
  BucketMatcher matcher_;
  LayoutSchedule schedule_;
  ZeroTensors zeros_;
  PlanStalls stalls_;
};

}  // namespace smddp
