// The rate and the momentum of an outer step, given or by a rule.
#pragma once

#include <cstdint>

#include "engine/averaging/policies/outer_options.h"
#include "engine/averaging/policies/sync_schedule.h"

namespace engine {

struct OuterRate {
  double lr = 1, momentum = 0;
};

// Returns the values of the outer step that follows `outer_steps` outer steps, after a period of
// `every` steps. The rule:
//   momentum = min(outer_steps / (outer_steps + 8), every / (every + 16), 0.9)
//   lr = 1 - momentum / 3, so 1 (the plain mean) without momentum and 0.7 with 0.9
// It does not depend on the length of the run: a longer run begins with the steps of a shorter one.
// docs/averaging.md has the measurements.
OuterRate outer_rate(const OuterOptions& options, std::int64_t outer_steps, std::int64_t every);

// Returns the period K of the averaging that is due after `steps_done` steps.
std::int64_t period_at(const SyncSchedule& schedule, std::int64_t steps_done);

}  // namespace engine
