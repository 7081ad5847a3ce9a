// Assigns arriving tensors to steps of a plan. Pure bookkeeping of one rank.
//
// A step is one reduction of every tensor of the plan. TensorFlow runs the graph that holds the plan's ops once per
// step, and one run ends before the next begins. A number identifies each run (session.h PlannedTensor::run):
//   - a tensor that arrives again while it is being reduced, or for a second run while tensors of the first are being
//     reduced, shows that two runs are under way at the same time: which tensors belong together is not known;
//   - a new run that begins while tensors of the last one are missing shows that the last one has failed.
//
// Threads: the engine's.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "core/status.h"

namespace smddp {

class PlanSteps {
 public:
  explicit PlanSteps(size_t tensors) : tensors_(tensors) {}

  enum class Arrival {
    kTaken,     // it belongs to step Of(index) - 1, counted from 0
    kOverlaps,  // of a second run, or the second of its kind, while the first is under way
    kTooLate,   // this rank has contributed zeros already: the step was given up, or hvd.join came before the tensor
  };
  // Tensor `index` has arrived. `run` 0: not known; then each tensor is counted separately.
  Arrival Take(int index, uint64_t run) {
    Tensor& tensor = tensors_[index];
    if (tensor.under_way) return Arrival::kOverlaps;
    if (run != 0 && run != run_) {
      if (under_way_ > 0) return Arrival::kOverlaps;
      run_ = run;
      void_.erase(void_.begin(), void_.upper_bound(begun_));  // nothing of these steps is under way here
    } else if (run != 0 && tensor.arrivals == begun_) {
      return tensor.run == run ? Arrival::kOverlaps : Arrival::kTooLate;
    }
    tensor.run = run;
    tensor.under_way = true;
    ++under_way_;
    begun_ = std::max(begun_, ++tensor.arrivals);
    return Arrival::kTaken;
  }
  // Its reduction has ended.
  void Finish(int index) {
    tensors_[index].under_way = false;
    --under_way_;
  }
  // Counts step `step`, counted from 1, of the tensors that have not arrived for it, and returns them: zeros are
  // contributed in their place. They have arrived for all earlier steps.
  std::vector<int> Fill(int64_t step) {
    std::vector<int> missing;
    for (size_t index = 0; index < tensors_.size(); ++index) {
      if (tensors_[index].arrivals >= step) continue;
      begun_ = std::max(begun_, ++tensors_[index].arrivals);
      missing.push_back(static_cast<int>(index));
    }
    return missing;
  }

  // The steps that have begun, the steps for which all tensors have arrived, and those for which tensor `index` has.
  int64_t begun() const { return begun_; }
  int64_t fewest() const {
    int64_t fewest = begun_;
    for (const Tensor& tensor : tensors_) fewest = std::min(fewest, tensor.arrivals);
    return fewest;
  }
  int64_t Of(int index) const { return tensors_[index].arrivals; }
  // Has every step that has begun all its tensors?
  bool complete() const { return fewest() == begun_; }
  // Would a tensor of `run` begin a new step while the last one lacks tensors, which can then never arrive?
  bool BreaksOff(uint64_t run) const { return run != 0 && run_ != 0 && run != run_ && under_way_ == 0 && !complete(); }
  // The run of the last step; 0: not known.
  uint64_t run() const { return run_; }
  bool finished() const { return under_way_ == 0; }

  // `expected`: a run has begun that brings all tensors, of which none has arrived. Returns what it was before.
  bool Expect(bool expected) { return std::exchange(expected_, expected); }
  // Step `step`, counted from 1, was given up by some rank: its reductions end as errors. It may not have begun here.
  void Void(int64_t step, const Status& why) { void_.emplace(step, why); }
  // OK when the step is not given up.
  Status VoidStatus(int64_t step) const {
    const auto at = void_.find(step);
    return at == void_.end() ? Status::Ok() : at->second;
  }
  // This rank gives up the last step that has begun, or the next one. The missing tensors are filled, and remembered
  // until TakeMissing.
  void GiveUp(int64_t step, const Status& why) {
    Void(step, why);
    missing_[step] = Fill(step);
  }
  std::vector<int> TakeMissing(int64_t step) {
    auto missing = missing_.extract(step);
    return missing.empty() ? std::vector<int>() : std::move(missing.mapped());
  }
  // Has every step that has begun all its tensors, or zeros in their place?
  bool settled() const { return complete() && missing_.empty(); }

 private:
  struct Tensor {
    int64_t arrivals = 0;
    uint64_t run = 0;        // the run of its last arrival
    bool under_way = false;  // arrived with a run number, and not finished
  };

  std::vector<Tensor> tensors_;
  int64_t begun_ = 0;
  int64_t under_way_ = 0;
  uint64_t run_ = 0;
  bool expected_ = false;
  std::map<int64_t, Status> void_;
  std::map<int64_t, std::vector<int>> missing_;  // by given-up step
};

}  // namespace smddp
