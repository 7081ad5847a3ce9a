// Steps of plans that fail on some rank before they are reduced.
//
// If some tensors of a step never arrive, no rank can complete it. The rank on which it failed notifies the others
// that the step is given up, and contributes zeros for the missing tensors. So every reduction of the step ends on
// every rank, as an error, and all ranks have the same step counts afterwards. A step of which no tensor arrives is
// noticed when its graph runs again (ops/kernels/run_begins.cc): ranks would otherwise take this run for the one
// before.
//
// Threads: the engine's.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/control/component.h"
#include "runtime/plans/planned_reductions.h"

namespace smddp {

class GivenUpSteps : public Component {
 public:
  // Both outlive it.
  GivenUpSteps(ControlBus& bus, PlannedReductions& planned) : bus_(bus), planned_(planned) {}

  // The framework cancelled the step of `where`. Its tensors that have not arrived never will.
  void Cancel(const PlannedTensor& where);
  // Call it before a tensor is processed: its run number may show that the previous run ended without all tensors of
  // its step.
  void BeforeArrival(const PlannedTensor& where);
  // A run begins that brings all tensors of the plan. Gives up the previous one if it has brought none.
  void Begin(const PlannedTensor& where);
  // Gives up the steps whose runs have ended without all their tensors.
  void GiveUpBroken();

  Status OnMessage(int from, std::string_view message) override;
  void Tick(int64_t now_ns) override;

 private:
  void GiveUp(Plan* plan, int64_t step);
  void FillAgreed();

  ControlBus& bus_;
  PlannedReductions& planned_;
  std::vector<std::pair<PlannedTensor, int64_t>> cancelled_;  // with the time of the cancellation
  // By plan and step: the ranks that do not know yet that this rank has given it up.
  std::map<std::pair<std::string, int64_t>, std::set<int>> unacknowledged_;
};

}  // namespace smddp
