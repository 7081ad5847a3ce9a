#include "runtime/plans/plan_steps.h"

#include <algorithm>

namespace smddp {

PlanSteps::Arrival PlanSteps::Take(int index, uint64_t run) {
  Tensor& tensor = tensors_[index];
  if (tensor.under_way) return Arrival::kOverlaps;
  if (run != 0 && run != run_) {
    if (under_way_ > 0) return Arrival::kOverlaps;
    run_ = run;
    ForgetVoid();
  } else if (run != 0 && tensor.arrivals == begun_) {
    return tensor.run == run ? Arrival::kOverlaps : Arrival::kTooLate;
  }
  tensor.run = run;
  tensor.under_way = true;
  ++under_way_;
  Count(index);
  return Arrival::kTaken;
}

void PlanSteps::Finish(int index) {
  tensors_[index].under_way = false;
  --under_way_;
}

int64_t PlanSteps::fewest() const {
  int64_t fewest = begun_;
  for (const Tensor& tensor : tensors_) fewest = std::min(fewest, tensor.arrivals);
  return fewest;
}

bool PlanSteps::BreaksOff(uint64_t run) const {
  return run != 0 && run_ != 0 && run != run_ && under_way_ == 0 && !complete();
}

Status PlanSteps::VoidStatus(int64_t step) const {
  const auto at = void_.find(step);
  return at == void_.end() ? Status::Ok() : at->second;
}

void PlanSteps::Count(int index) { begun_ = std::max(begun_, ++tensors_[index].arrivals); }

// Drops given-up steps before the current one: nothing of them is under way here.
void PlanSteps::ForgetVoid() { void_.erase(void_.begin(), void_.upper_bound(begun_)); }

}  // namespace smddp
