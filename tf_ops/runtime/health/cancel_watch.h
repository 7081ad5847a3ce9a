// Steps that the framework has cancelled.
//
// A cancelled step often ends normally: the end of the data cancels a step whose gradients are already being reduced
// on all ranks. Or it is given up (plans/given_up_steps.h, named/named_matching.h), and ends when the other ranks
// have reached it. A step that no rank can complete, because each waits for another, ends the session on all ranks.
//
// Threads: the engine's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/control/component.h"
#include "runtime/health/stall_report.h"

namespace smddp {

class CancelWatch : public Component {
 public:
  // Both outlive it.
  CancelWatch(ControlBus& bus, StallReport& report) : bus_(bus), report_(report) {}

  // `what`: the request, or the gradient, whose step was cancelled.
  void Add(const std::string& what);
  void Tick(int64_t now_ns) override;

 private:
  struct Cancelled {
    std::string what;
    int64_t when_ns = 0;
  };
  ControlBus& bus_;
  StallReport& report_;
  std::vector<Cancelled> cancelled_;
};

}  // namespace smddp
