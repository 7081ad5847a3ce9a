// Which settings to try next, given how long the steps took with the ones before. Pure: no clock, no I/O.
//
// A point picks one value on each axis (bucket size, chunk size, ...); 0 is the default's. First the default is
// measured, after a warm-up that does not count. Then each axis in turn: every other value of it, the rest as in the
// best point so far, which it replaces when clearly better. At the end the default and the best are measured twice
// more by turns, and the default is kept unless the best is clearly better both times: what won by luck, or because the
// machine was busy while the default was measured, does not stay.
#pragma once

#include <cstddef>
#include <vector>

namespace smddp {

enum class TunePhase { kWarmUp, kDefault, kCandidate, kDefaultAgain, kBestAgain, kOver };
const char* NameOf(TunePhase phase);

using TunePoint = std::vector<int>;  // by axis

struct StepSummary {
  double median_us = 0;
  double spread_us = 0;  // the median distance from the median
};
StepSummary Summarize(std::vector<double> step_us);

// By 3 %, and by more than the steps of either differ among themselves.
bool ClearlyFaster(const StepSummary& candidate, const StepSummary& than);

class Autotuner {
 public:
  // `values_of_axis`: how many values each axis has. Where no axis has a choice it is over at once.
  explicit Autotuner(std::vector<int> values_of_axis);

  TunePhase phase() const { return phase_; }
  bool over() const { return phase_ == TunePhase::kOver; }
  // What to measure next; when it is over, what to keep.
  const TunePoint& point() const { return point_; }
  // How long the steps at `point` took. True: it is the best so far.
  bool Measured(const StepSummary& steps);
  // What the last trial at the point that is kept took; when it is over.
  const StepSummary& of_kept() const { return of_kept_; }

 private:
  // Goes to the next value that is to be tried; false when all were.
  bool NextCandidate();
  void Go(TunePhase phase, const TunePoint& point);

  const std::vector<int> values_;
  const TunePoint default_;
  TunePhase phase_ = TunePhase::kWarmUp;
  TunePoint point_, best_;
  StepSummary of_best_, of_default_, of_kept_;
  size_t axis_ = 0;
  int value_ = 0;
  int confirmed_ = 0;  // how often the best was better again
};

}  // namespace smddp
