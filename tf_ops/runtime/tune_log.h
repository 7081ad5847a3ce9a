// The CSV file in which rank 0 writes what autotuning measured, one row for each trial.
//
// Threads: the engine's.
#pragma once

#include <string>

#include "runtime/autotune.h"
#include "runtime/tune_settings.h"

namespace smddp {

struct TuneRow {
  std::string plan;
  int trial = 0;
  TunePhase phase = TunePhase::kWarmUp;
  TuneSettings settings;
  StepSummary steps;
  bool chosen = false;  // the best so far; in the last row: what is kept
};

class TuneLog {
 public:
  // "" writes nothing. A file that cannot be opened is a warning: training goes on without it.
  explicit TuneLog(const std::string& path);
  ~TuneLog();
  TuneLog(const TuneLog&) = delete;
  TuneLog& operator=(const TuneLog&) = delete;

  void Add(const TuneRow& row);

 private:
  void Write(const std::string& text);

  const std::string path_;
  int file_ = -1;
};

}  // namespace smddp
