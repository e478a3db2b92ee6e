// The learning rate as a pure function of the global step, so that resuming needs no state.
#pragma once

#include <cstdint>
#include <vector>

namespace engine {

struct LearningRate {
  enum class Schedule { kConstant, kStep, kCosine, kRange };

  double base = 0.01;  // after scaling by the world size
  Schedule schedule = Schedule::kConstant;
  std::int64_t warmup_steps =
      0;  // linear from base / warmup_steps to base over this many first steps (Goyal et al., 2017)
  std::vector<std::int64_t>
      milestones;  // kStep: at each of these global steps the rate is multiplied by gamma
  double gamma = 0.1;
  std::int64_t total_steps =
      0;  // kCosine: the minimum is reached after this many steps (Loshchilov and Hutter, 2017)
  // kCosine: the step from which these are counted. It is 0 unless a run continues with another
  // batch size (EpochSteps::step_of_epoch(0)), and may be negative.
  std::int64_t first_step = 0;
  double minimum = 0;  // for kCosine
  // kRange: the rate in the last of total_steps; it grows exponentially from `base` (Smith, 2017: a
  // range test).
  double highest = 0;

  double at(std::int64_t global_step) const;  // for the update after `global_step` completed ones
};

}  // namespace engine
