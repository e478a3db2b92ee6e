// What rank 0 prints during a run: the step lines, a progress bar on a terminal, results at the
// end.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/train/train_observer.h"
#include "io/data/sources/dataset.h"

namespace tools {

// What the progress bar counts, and how many of them are in a sample.
struct ProgressUnit {
  const char* name = "samples";  // in the plural
  std::int64_t per_sample = 1;
};
ProgressUnit progress_unit(const io::Dataset& data);  // images, rows, or the tokens of a window
std::string rate_text(const ProgressUnit& unit, double samples_per_s);  // "1280 tokens/s"

struct ConsoleOptions {
  std::int64_t steps_per_epoch = 1, total_steps = 1;
  bool progress_bar = false;  // only where stdout is a terminal
  ProgressUnit unit;
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
// 29034 -> "29,034"
std::string with_commas(std::int64_t value);
// "engine: TEXT" on stderr, one write.
void print_notice(const std::string& text);

}  // namespace tools
