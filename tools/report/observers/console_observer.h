// Prints the output of rank 0 during a run: the step lines, a progress bar on a terminal, results
// at the end.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "engine/train/train_observer.h"
#include "tools/report/text/progress_line.h"

namespace tools {

struct ConsoleOptions {
  std::int64_t steps_per_epoch = 1, total_steps = 1, epochs = 1;  // at the end
  // Only if stdout is a terminal; without it each report has a line with rate and remaining time.
  bool progress_bar = false;
  bool rich = false;       // the bar has a curve of the loss above it
  bool color = false;      // colors the curve
  bool verbose = false;    // each report has a line with the phases of a step
  bool equal_work = true;  // of all ranks: a slower one is named
  ProgressUnit unit;
  std::chrono::milliseconds min_interval{0};  // between two printed reports
  double seconds_before = 0;                  // duration of the training so far, with other ranks
};

std::unique_ptr<engine::TrainObserver> make_console_observer(const ConsoleOptions& options);

// Prints warnings on stderr if replicas differ and the run continues: rank 0 reports all of them,
// and each rank that differs reports itself.
std::unique_ptr<engine::TrainObserver> make_desync_observer(int rank, int world_size);

// Returns e.g. "loss 0.0312, accuracy 99.10 % (991/1000), top-5 99.90 %"; with the perplexity for
// text.
std::string eval_text(const engine::EvalReport& report);
// Returns e.g. "accuracy 99.10 %", "perplexity 8.000".
std::string best_text(const engine::BestEvaluation& best);
// Returns e.g. "1:02:03.123456", hours without leading zeros, in the format of Python's time
// differences.
std::string duration_text(double seconds);

}  // namespace tools
