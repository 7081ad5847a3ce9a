// Frees the numbers and the memory of plans that a program has stopped using, for example of models that it has
// deleted.
//
// Rank 0 numbers plans. When more than kMaxIdlePlans have numbers, it asks all ranks about the one that it has used
// least recently, if that was a while ago. A rank on which nothing of the plan is under way answers with the number
// of steps that have begun there, and keeps tensors that arrive for the plan until rank 0 has decided. When all
// answers are equal, no message of the plan is in flight: all ranks forget it, and its number is free. A rank that
// uses the plan again announces it again.
//
// Threads: the engine's.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

#include "runtime/control/component.h"
#include "runtime/control/join_rounds.h"
#include "runtime/named/coordinator.h"
#include "runtime/plans/planned_reductions.h"

namespace smddp {

class PlanRetirement : public Component {
 public:
  // Submits a kept tensor of a plan again.
  using Resume = std::function<void(KeptArrival kept)>;
  // All outlive it.
  PlanRetirement(ControlBus& bus, PlannedReductions& planned, const DevicePaths& device_paths, Coordinator& coordinator,
                 const JoinRounds& rounds, Resume resume)
      : bus_(bus),
        planned_(planned),
        device_paths_(device_paths),
        coordinator_(coordinator),
        rounds_(rounds),
        resume_(std::move(resume)) {}

  static constexpr size_t kMaxIdlePlans = 256;

  Status OnMessage(int from, std::string_view message) override;
  // On rank 0: asks about a plan when there are too many.
  void Step() override;
  // `rank` does not answer or decide any more.
  void OnDeparture(int rank) override;

 private:
  struct Message;
  bool IsIdle(const Plan& plan) const;
  Plan* LeastRecentlyUsed(int64_t before_ns) const;
  // Keeps the plan's tensors from now on, and returns how many of its steps have begun. Nothing: it is in use.
  std::optional<int64_t> Keep(Plan* plan) const;
  bool OnRequest(const Message& message);
  bool OnAnswer(const Message& message);
  void Decide(bool forget);
  void End(int number, bool forget);

  ControlBus& bus_;
  PlannedReductions& planned_;
  const DevicePaths& device_paths_;
  Coordinator& coordinator_;
  const JoinRounds& rounds_;
  const Resume resume_;
  int kept_ = -1;  // the number of the plan whose tensors this rank keeps; -1: none
  // On rank 0.
  struct Question {
    int number = -1;  // of the plan it has asked about; -1: none
    int answers = 0;
    bool alike = false;  // all answers so far are equal
    int64_t steps = 0;   // begun here
  } asked_;
  bool refused_ = false;  // since the last new plan
  size_t numbers_ = 0;    // when it last asked: the number of plans in use
};

}  // namespace smddp
