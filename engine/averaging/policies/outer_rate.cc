// Computes the rate and the momentum of an outer step.
#include "engine/averaging/policies/outer_rate.h"

#include <algorithm>

namespace engine {
namespace {

constexpr double kMaxMomentum = 0.9;
constexpr double kRateDecrease = 1.0 / 3;    // of the rate, per unit of momentum
constexpr std::int64_t kHalfOfSteps = 8;     // outer steps after which the momentum is a half
constexpr std::int64_t kHalfOfPeriods = 16;  // length of a period with momentum of at most a half

double grown(std::int64_t count, std::int64_t half) {
  return static_cast<double>(count) / static_cast<double>(count + half);
}

}  // namespace

OuterRate outer_rate(const OuterOptions& options, std::int64_t outer_steps, std::int64_t every) {
  const double by_rule =
      std::min({kMaxMomentum, grown(outer_steps, kHalfOfSteps), grown(every, kHalfOfPeriods)});
  const double momentum = options.momentum.value_or(by_rule);
  return {.lr = options.lr.value_or(1 - momentum * kRateDecrease), .momentum = momentum};
}

std::int64_t period_at(const SyncSchedule& schedule, std::int64_t steps_done) {
  std::int64_t every = schedule.phases().front().every;
  for (const SyncPhase& phase : schedule.phases())
    if (phase.from < steps_done) every = phase.every;
  return every;
}

}  // namespace engine
