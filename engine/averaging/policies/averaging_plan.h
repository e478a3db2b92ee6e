// What a run's averaging will amount to, told before it starts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/averaging/policies/sync_schedule.h"

namespace engine {

struct AveragingPlan {
  std::int64_t first_step = 0, total_steps = 0;  // steps done at the start and at the end
  std::int64_t steps_per_epoch = 1;
  std::int64_t first_of_epochs = 0;  // EpochSteps::step_of_epoch(0)
  std::int64_t warmup = 0;           // gradient averaging in the first so many steps
  SyncSchedule schedule;             // of parameters, in global steps
  std::int64_t bytes_each = 0;  // payload of one averaging of parameters and what goes with them
  bool outer = false;           // an outer step follows the averagings of the schedule
  int islands = 0, ranks = 0;   // islands > 0: gradients are averaged within so many every step
};

// How often parameters will be averaged: by the clock, and at ends of epochs or of the run where
// the clock does not.
struct PlannedAveragings {
  std::int64_t by_clock = 0, at_ends = 0;
};
PlannedAveragings count_averagings(const AveragingPlan& plan);

// One line that says what will happen, then one for each likely mistake ("K
// = 500 > 196 steps ...").
std::vector<std::string> describe(const AveragingPlan& plan);

}  // namespace engine
