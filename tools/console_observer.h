// What rank 0 prints during a run: the step lines, a progress bar on a terminal, results at the end.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/train/train_observer.h"

namespace tools {

struct ConsoleOptions {
  std::int64_t steps_per_epoch = 1, total_steps = 1;
  bool progress_bar = false;  // only where stdout is a terminal
};

std::unique_ptr<engine::TrainObserver> make_console_observer(const ConsoleOptions& options);

// "1:02:03.123456", hours without leading zeros, as Python prints a time difference.
std::string duration_text(double seconds);
// 29034 -> "29,034"
std::string with_commas(std::int64_t value);
// "engine: TEXT" on stderr, one write.
void print_notice(const std::string& text);

}  // namespace tools
