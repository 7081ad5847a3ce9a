// The path of the buckets of plans whose tensors may lie on GPUs: between GPUs, or through host memory. All ranks
// agree on it for each plan before its first bucket begins (gpu/session_devices.h).
//
// Threads: the engine's.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "collectives/fabric.h"
#include "collectives/rail/algorithm.h"
#include "runtime/control/component.h"
#include "runtime/gpu/session_devices.h"
#include "runtime/named/named_matching.h"

namespace smddp {

class DevicePaths : public Component, public VerdictReader {
 public:
  // All outlive it.
  DevicePaths(ControlBus& bus, const Fabric& fabric, NamedMatching& named, SessionDevices& devices)
      : bus_(bus), fabric_(fabric), named_(named), devices_(devices) {}
  // `on_agreed` is called with the name of a plan whose buckets may now begin.
  void SetOnAgreed(std::function<void(const std::string& plan)> on_agreed) { on_agreed_ = std::move(on_agreed); }

  // Could tensors of this rank lie on a GPU?
  bool possible() { return devices_.Possible(); }
  // The ranks have to agree on the plan of that name. `asked`: the other ranks have started the agreement, and this
  // one contributes nothing.
  void Expect(const std::string& plan, bool asked);
  // For a plan that so far only other ranks used: this rank takes part in the agreement, unless it is settled.
  void AskAlso(const std::string& plan);
  // Have the ranks agreed on an expected plan? If not, starts the agreement, once, with the tensors of a bucket that
  // `tensors` returns.
  using Tensors = std::function<std::vector<TensorRef>()>;
  bool IsAgreed(const std::string& plan, const Tensors& tensors);
  // The same without starting the agreement.
  bool IsSettled(const std::string& plan) const;
  void Forget(const std::string& plan) { states_.erase(plan); }

  // The reduction of a bucket of which some `tensors` may lie on a GPU. `call.view` outlives the task.
  TaskPtr BeginBucket(const std::string& plan, const AllreduceAlgorithm& rail, const FusedCall& call,
                      const std::vector<TensorRef>& tensors);

  void OnVerdict(const Verdict& verdict) override;
  void Step() override;

 private:
  // Not asked yet; asked; agreed on the path between GPUs, whose connections are being opened; agreed.
  enum class State { kUnknown, kAsked, kOpening, kHost, kDevice };
  Status Decide(State* state, const Verdict& verdict);
  Status FinishOpening();

  ControlBus& bus_;
  const Fabric& fabric_;
  NamedMatching& named_;
  SessionDevices& devices_;
  std::function<void(const std::string& plan)> on_agreed_;
  std::map<std::string, State> states_;  // by plan
};

}  // namespace smddp
