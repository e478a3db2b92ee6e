// What rank 0 prints during a run: the step lines, a progress bar on a terminal, results at the
// end.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "engine/train/train_observer.h"
#include "tools/report/observers/progress_line.h"

namespace tools {

struct ConsoleOptions {
  std::int64_t steps_per_epoch = 1, total_steps = 1, epochs = 1;  // at the end
  bool progress_bar = false;  // only where stdout is a terminal; without it each report has a line
                              // with rate and time left
  bool rich = false;          // the bar has a curve of the loss above it
  bool color = false;         // of the curve
  bool verbose = false;       // each report has a line with the phases of a step
  ProgressUnit unit;
  std::chrono::milliseconds min_interval{0};  // between two reports that are printed
  double seconds_before = 0;                  // of the training, with other ranks
};

std::unique_ptr<engine::TrainObserver> make_console_observer(const ConsoleOptions& options);

// Warnings on stderr when replicas differ and the run goes on: rank 0 tells all, the ranks that
// differ tell of themselves.
std::unique_ptr<engine::TrainObserver> make_desync_observer(int rank, int world_size);

// "loss 0.0312, accuracy 99.10 % (991/1000), top-5 99.90 %"; for text with the perplexity.
std::string eval_text(const engine::EvalReport& report);
// "accuracy 99.10 %", "perplexity 8.000"
std::string best_text(const engine::BestEvaluation& best);
// "1:02:03.123456", hours without leading zeros, as Python prints a time difference.
std::string duration_text(double seconds);
// warn() of what can be read on a terminal.
void print_notice(const std::string& text);

}  // namespace tools
