#include "runtime/plan_tuner.h"

#include <algorithm>

#include "core/log.h"

namespace smddp {
namespace {

std::vector<int> SizesOf(const TuneChoices& choices) {
  std::vector<int> sizes;
  for (const auto* axis :
       {&choices.bucket_bytes, &choices.chunk_bytes, &choices.chunks_in_flight, &choices.algorithm}) {
    sizes.push_back(static_cast<int>(axis->size()));
  }
  return sizes;
}

}  // namespace

PlanTuner::PlanTuner(std::string plan, TuneChoices choices, TuneLog* log)
    : plan_(std::move(plan)), choices_(std::move(choices)), log_(log), tuner_(SizesOf(choices_)) {}

TuneSettings PlanTuner::settings() const {
  const TunePoint& point = tuner_.point();
  TuneSettings settings;
  settings.bucket_bytes = choices_.bucket_bytes[point[0]];
  settings.chunk_bytes = choices_.chunk_bytes[point[1]];
  settings.chunks_in_flight = static_cast<int32_t>(choices_.chunks_in_flight[point[2]]);
  settings.algorithm = static_cast<int32_t>(choices_.algorithm[point[3]]);
  return settings;
}

void PlanTuner::BeginTrial(int buckets) {
  steps_.assign(steps(), Step());
  buckets_ = buckets;
}

void PlanTuner::TensorCame(int64_t step, int64_t now_ns) {
  Step& at = steps_[step];
  if (at.begin_ns == 0 || now_ns < at.begin_ns) at.begin_ns = now_ns;
}

void PlanTuner::BucketDone(int64_t step, int64_t now_ns) {
  Step& at = steps_[step];
  if (++at.buckets == buckets_) at.end_ns = now_ns;
}

void PlanTuner::EndTrial() {
  std::vector<double> step_us;
  for (size_t step = 1; step < steps_.size(); ++step) {
    // Where callers do not wait for a step before they hand over the next, what counts is the pace.
    const int64_t begin_ns = std::max(steps_[step].begin_ns, steps_[step - 1].end_ns);
    step_us.push_back(static_cast<double>(steps_[step].end_ns - begin_ns) * 1e-3);
  }
  TuneRow row = {plan_, trial_++, tuner_.phase(), settings(), Summarize(std::move(step_us)), false};
  row.chosen = tuner_.Measured(row.steps);
  log_->Add(row);
  if (!over()) return;
  row = {plan_, trial_, TunePhase::kOver, settings(), tuner_.of_kept(), true};
  log_->Add(row);
  Log(LogLevel::kInfo, "autotune of '" + plan_ + "' is over after " + std::to_string(trial_) + " trials");
}

}  // namespace smddp
