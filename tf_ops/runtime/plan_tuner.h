// Rank 0's side of tuning one plan: what the axes are, how long the steps took, what to tell next.
//
// Threads: the engine's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/autotune.h"
#include "runtime/tune_log.h"
#include "runtime/tune_settings.h"

namespace smddp {

// By axis: the values to choose from, the default's first.
struct TuneChoices {
  std::vector<int64_t> bucket_bytes, chunk_bytes, chunks_in_flight, algorithm;
};

class PlanTuner {
 public:
  static constexpr int kStepsPerTrial = 8;  // the first is not counted: its tensors may have been held

  PlanTuner(std::string plan, TuneChoices choices, TuneLog* log);

  bool over() const { return tuner_.over(); }
  // What to tell next, and for how many steps; 0: for good.
  TuneSettings settings() const;
  int steps() const { return over() ? 0 : kStepsPerTrial; }

  // A trial begins in which a step ends when `buckets` buckets are done. `step` counts from its first.
  void BeginTrial(int buckets);
  void TensorCame(int64_t step, int64_t now_ns);
  void BucketDone(int64_t step, int64_t now_ns);
  // All steps of the trial are done.
  void EndTrial();

 private:
  struct Step {
    int64_t begin_ns = 0, end_ns = 0;
    int buckets = 0;  // done
  };

  const std::string plan_;
  const TuneChoices choices_;
  TuneLog* const log_;
  Autotuner tuner_;
  std::vector<Step> steps_;  // of the trial
  int buckets_ = 0;
  int trial_ = 0;
};

}  // namespace smddp
