// The zeros that this rank contributes for gradients it does not have (hvd.join, and steps that are given up).
//
// Threads: the engine's.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "fusion/plan.h"
#include "runtime/control/component.h"
#include "runtime/control/zero_memory.h"
#include "runtime/plans/plan_layout.h"

namespace smddp {

class ZeroTensors {
 public:
  // `shared`: as ZeroMemory. The bus outlives it.
  ZeroTensors(ControlBus& bus, bool shared) : bus_(bus), memory_(shared) {}

  // Makes an arrival whose index and step are not set yet. Without a callback: out of memory, and the session has
  // failed.
  Arrival Make(const TensorSpec& spec) {
    Arrival arrival;
    std::shared_ptr<void> keep;
    Result<TensorRef> tensor = memory_.Tensor(spec.dtype, spec.shape, &keep);
    if (!tensor.ok()) {
      bus_.Fail(tensor.status());
      return arrival;
    }
    ++in_flight_;
    arrival.tensor = std::move(*tensor);
    arrival.done = [this, keep](const Status&) { --in_flight_; };
    return arrival;
  }
  // The number of those whose reductions have not ended.
  int64_t in_flight() const { return in_flight_; }
  ZeroMemory& memory() { return memory_; }

 private:
  ControlBus& bus_;
  ZeroMemory memory_;
  int64_t in_flight_ = 0;
};

}  // namespace smddp
