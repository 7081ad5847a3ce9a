// Planned matching: gradients are identified by (plan, index). The ranks agree on a plan once, when it is first used.
// From then on a gradient needs no message before its bucket is reduced.
//
// In the first step the gradients are put into buckets as listed. From the second step on: in the order in which they
// became ready on rank 0 in the first step, once rank 0 has sent it. A tensor of the second step that arrives before
// that waits. This cannot deadlock: rank 0 waits only for the first step, which does not depend on the second.
//
// Threads: the engine's, except for the counters.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/env/env.h"
#include "runtime/control/component.h"
#include "runtime/control/messages.h"
#include "runtime/control/zero_memory.h"
#include "runtime/named/named_matching.h"
#include "runtime/plans/bucket_launcher.h"
#include "runtime/plans/bucket_matcher.h"
#include "runtime/plans/plan_table.h"

namespace smddp {

class PlannedReductions : public Component {
 public:
  // All outlive it.
  PlannedReductions(ControlBus& bus, const Fabric& fabric, const Env& env, const PlanRegistry& registry,
                    NamedMatching& named, DevicePaths& device_paths, const Verifier& verifier);

  // Makes the tensor's plan known to the other ranks, unless it is. Null: this process does not know the plan.
  Plan* Announce(const PlannedTensor& where);
  // A gradient is ready. True: it begins a step of its plan on this rank.
  bool Reduce(const PlannedTensor& where, const TensorRef& tensor, DoneCallback done);

  PlanTable& plans() { return plans_; }
  const PlanTable& plans() const { return plans_; }
  ZeroMemory& zeros() { return zeros_; }
  const BucketMatcher& matcher() const { return matcher_; }  // its counters
  // By plan: how many steps have begun here; plans without steps are omitted.
  StepCounts Steps() const;

  // hvd.join: begins, with zeros, those of the plan's first `steps` steps that have not begun here. False: there is
  // no such plan. An error: no rank can have begun so many.
  Result<bool> ContributeZeros(const std::string& name, int64_t steps);
  // Adds a plan of the other ranks that was agreed on while this one had joined. An error: it is in use here.
  Status AddForeign(const Verdict& verdict);

  // Contributes zeros for `tensors` in step `step` of the plan, counted from 0.
  void PlaceZeros(Plan* plan, const std::vector<int>& tensors, int64_t step);
  // From now on the tensors that arrive for the plan are kept; of one plan at a time. EndKeeping returns them, to be
  // submitted again. `forget`: without the plan, which is idle.
  void Keep(const Plan* plan) { matcher_.Keep(plan); }
  std::vector<KeptArrival> EndKeeping(Plan* plan, bool forget);

  Status OnMessage(int from, std::string_view message) override;
  void OnFailure(const Status& why) override {
    for (auto& [name, plan] : plans_.all()) matcher_.FailWaiting(&plan, why);
  }
  bool waiting() const override { return matcher_.waiting() > 0; }
  int64_t OldestNs() const override;
  void Describe(std::vector<std::string>* under_way) const override {
    if (waiting()) under_way->emplace_back("gradients of a training step");
  }

 private:
  // Applies the ranks' agreement to the plan. `devices_asked`: as `asked` of DevicePaths::Expect.
  void Adopt(Plan* plan, const Verdict& verdict, bool devices_asked);
  void Decide(const std::string& name, const Status& verdict);
  // On rank 0: the order to send for the plan, once. Nothing: on other ranks, or while it is not known.
  std::optional<PlanOrder> OrderToSend(const Plan& plan) const;
  void TrySendOrder(Plan* plan);
  // False: this cannot be an order of the plan, and nothing has changed.
  bool Apply(Plan* plan, const PlanOrder& order);
  void LogLayout(const Plan& plan) const;

  ControlBus& bus_;
  const Fabric& fabric_;
  const PlanRegistry& registry_;
  NamedMatching& named_;
  DevicePaths& device_paths_;
  PlanTable plans_;
  const bool observe_;  // SMDDP_GRADIENT_ORDER is "observed"; only rank 0's setting matters
  BucketLauncher launcher_;
  ZeroMemory zeros_;  // for gradients that this rank does not have (hvd.join, and steps that are given up)
  BucketMatcher matcher_;
};

}  // namespace smddp
