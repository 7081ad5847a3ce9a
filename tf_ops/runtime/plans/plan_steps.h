// Which step of a plan an arriving tensor belongs to. Pure bookkeeping of one rank.
//
// A step is one reduction of every tensor of the plan. TensorFlow runs the graph that holds the plan's ops once for
// each step, and one run ends before the next begins. A number tells runs apart (session.h PlannedTensor::run):
//   - a tensor that comes again while it is still being reduced, or for a second run while tensors of the first are
//     being reduced, shows that two runs are under way at once: which tensors belong together is not known;
//   - a new run that begins while tensors of the last one never came shows that the last one failed between them.
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
    kTooLate,   // this rank has filled its place already: the step was given up, or hvd.join came before it
  };
  // Tensor `index` has come. `run` 0: not known, and each tensor counts for itself.
  Arrival Take(int index, uint64_t run);
  // Its reduction has ended.
  void Finish(int index);
  // Something else has taken the tensor's place in its next step (zeros).
  void Fill(int index) { Count(index); }

  // Steps that have begun, those that all tensors have come in, and those in which tensor `index` has.
  int64_t begun() const { return begun_; }
  int64_t fewest() const;
  int64_t Of(int index) const { return tensors_[index].came; }
  // Has every step that has begun all its tensors?
  bool complete() const { return fewest() == begun_; }
  // Would a tensor of `run` begin a new step while the last one lacks some, which can never come?
  bool BreaksOff(uint64_t run) const;
  // The run that brought the last step; 0: not known.
  uint64_t run() const { return run_; }
  bool finished() const { return under_way_ == 0; }

  // Step `step`, counted from 1, is given up by some rank: its reductions end as errors. It may not have begun here.
  void Void(int64_t step, const Status& why) { void_.emplace(step, why); }
  // OK: it is not given up.
  Status VoidStatus(int64_t step) const;

 private:
  struct Tensor {
    int64_t came = 0;
    uint64_t run = 0;        // that brought it last
    bool under_way = false;  // brought by a run, and not finished
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
