#include "runtime/autotune.h"

#include <algorithm>
#include <cmath>

namespace smddp {
namespace {

constexpr double kClearly = 0.97;
constexpr int kConfirmations = 2;

double MedianOf(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace

const char* NameOf(TunePhase phase) {
  constexpr const char* kNames[] = {"warm-up", "default", "candidate", "default again", "best again", "decided"};
  return kNames[static_cast<int>(phase)];
}

StepSummary Summarize(std::vector<double> step_us) {
  StepSummary summary;
  summary.median_us = MedianOf(step_us);
  for (double& us : step_us) us = std::abs(us - summary.median_us);
  summary.spread_us = MedianOf(std::move(step_us));
  return summary;
}

bool ClearlyFaster(const StepSummary& candidate, const StepSummary& than) {
  const double gain_us = than.median_us - candidate.median_us;
  return candidate.median_us < kClearly * than.median_us && gain_us > std::max(candidate.spread_us, than.spread_us);
}

Autotuner::Autotuner(std::vector<int> values_of_axis)
    : values_(std::move(values_of_axis)), default_(values_.size(), 0), point_(default_), best_(default_) {
  const bool choice = std::any_of(values_.begin(), values_.end(), [](int values) { return values > 1; });
  if (!choice) phase_ = TunePhase::kOver;
}

bool Autotuner::Measured(const StepSummary& steps) {
  bool better = false;
  switch (phase_) {
    case TunePhase::kOver:
      break;
    case TunePhase::kWarmUp:
      Go(TunePhase::kDefault, default_);
      break;
    case TunePhase::kDefaultAgain:
      of_default_ = steps;
      Go(TunePhase::kBestAgain, best_);
      break;
    case TunePhase::kBestAgain:
      better = ClearlyFaster(steps, of_default_);
      of_kept_ = better ? steps : of_default_;
      if (better && ++confirmed_ < kConfirmations) {
        Go(TunePhase::kDefaultAgain, default_);
      } else {
        Go(TunePhase::kOver, better ? best_ : default_);
      }
      break;
    case TunePhase::kDefault:
    case TunePhase::kCandidate:
      better = phase_ == TunePhase::kDefault || ClearlyFaster(steps, of_best_);
      if (better) {
        best_ = point_;
        of_best_ = steps;
      }
      of_kept_ = of_best_;
      if (!NextCandidate()) Go(best_ == default_ ? TunePhase::kOver : TunePhase::kDefaultAgain, default_);
      break;
  }
  return better;
}

bool Autotuner::NextCandidate() {
  for (; axis_ < values_.size(); ++axis_, value_ = 0) {
    if (++value_ >= values_[axis_]) continue;
    TunePoint candidate = best_;
    candidate[axis_] = value_;
    Go(TunePhase::kCandidate, candidate);
    return true;
  }
  return false;
}

void Autotuner::Go(TunePhase phase, const TunePoint& point) {
  phase_ = phase;
  point_ = point;
}

}  // namespace smddp
