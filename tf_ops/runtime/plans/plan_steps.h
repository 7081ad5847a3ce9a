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

#include <cstddef>
#include <cstdint>
#include <map>
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
  Arrival Take(int index, uint64_t run);
  // Its reduction has ended.
  void Finish(int index);
  // Zeros were contributed for the tensor in its next step.
  void Fill(int index) { Count(index); }

  // The steps that have begun, the steps for which all tensors have arrived, and those for which tensor `index` has.
  int64_t begun() const { return begun_; }
  int64_t fewest() const;
  int64_t Of(int index) const { return tensors_[index].arrivals; }
  // Has every step that has begun all its tensors?
  bool complete() const { return fewest() == begun_; }
  // Would a tensor of `run` begin a new step while the last one lacks tensors, which can then never arrive?
  bool BreaksOff(uint64_t run) const;
  // The run of the last step; 0: not known.
  uint64_t run() const { return run_; }
  bool finished() const { return under_way_ == 0; }

  // Step `step`, counted from 1, was given up by some rank: its reductions end as errors. It may not have begun here.
  void Void(int64_t step, const Status& why) { void_.emplace(step, why); }
  // OK when the step is not given up.
  Status VoidStatus(int64_t step) const;

 private:
  struct Tensor {
    int64_t arrivals = 0;
    uint64_t run = 0;        // the run of its last arrival
    bool under_way = false;  // arrived with a run number, and not finished
  };
  void Count(int index);
  void ForgetVoid();

  std::vector<Tensor> tensors_;
  int64_t begun_ = 0;
  int64_t under_way_ = 0;
  uint64_t run_ = 0;
  std::map<int64_t, Status> void_;
};

}  // namespace smddp
