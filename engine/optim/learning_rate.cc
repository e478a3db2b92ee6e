// Implements warm-up, and the schedules after it.
#include "engine/optim/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace engine {
namespace {

// Falls from 1 to 0.
double decayed(LearningRate::Decay decay, double progress) {
  switch (decay) {
    case LearningRate::Decay::kSquareRoot:
      return 1 - std::sqrt(progress);
    case LearningRate::Decay::kLinear:
      return 1 - progress;
    case LearningRate::Decay::kCosine:
      return 0.5 * (1 + std::cos(std::numbers::pi * progress));
  }
  return 1;
}

}  // namespace

double LearningRate::at(std::int64_t global_step) const {
  if (global_step < warmup_steps) {
    const auto whole = static_cast<double>(warmup_steps);
    if (schedule == Schedule::kLinear || schedule == Schedule::kStableDecay)
      return minimum + (base - minimum) * static_cast<double>(global_step) / whole;
    return base * static_cast<double>(global_step + 1) / whole;
  }
  // The rate that falls from `base` to `minimum` in the last `length` steps.
  const auto falling = [&](Decay shape, std::int64_t length) {
    length = std::max<std::int64_t>(1, length);
    const auto taken = static_cast<double>(global_step - (total_steps - length));
    const double progress = std::clamp(taken / static_cast<double>(length), 0.0, 1.0);
    return minimum + (base - minimum) * decayed(shape, progress);
  };
  const std::int64_t after_warmup = total_steps - first_step - warmup_steps;
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
    case Schedule::kCosine:
      return falling(Decay::kCosine, after_warmup);
    case Schedule::kLinear:
      return falling(Decay::kLinear, after_warmup);
    case Schedule::kStableDecay:
      return falling(decay, std::llround(decay_fraction * static_cast<double>(after_warmup)));
  }
  return base;
}

}  // namespace engine
