// Implements warm-up, then a constant, step, cosine or range-test schedule.
#include "engine/optim/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace engine {

double LearningRate::at(std::int64_t global_step) const {
  if (global_step < warmup_steps)
    return base * static_cast<double>(global_step + 1) / static_cast<double>(warmup_steps);
  switch (schedule) {
    case Schedule::kConstant:
      return base;
    case Schedule::kStep: {
      const auto passed = std::count_if(milestones.begin(), milestones.end(),
                                        [&](std::int64_t m) { return global_step >= m; });
      return base * std::pow(gamma, static_cast<double>(passed));
    }
    case Schedule::kRange: {
      const auto last = static_cast<double>(std::max<std::int64_t>(1, total_steps - 1));
      return base *
             std::pow(highest / base, std::min(1.0, static_cast<double>(global_step) / last));
    }
    case Schedule::kCosine: {
      const std::int64_t begin = first_step + warmup_steps;
      const auto length = static_cast<double>(std::max<std::int64_t>(1, total_steps - begin));
      const double progress =
          std::clamp(static_cast<double>(global_step - begin) / length, 0.0, 1.0);
      return minimum + (base - minimum) * 0.5 * (1 + std::cos(std::numbers::pi * progress));
    }
  }
  return base;
}

}  // namespace engine
