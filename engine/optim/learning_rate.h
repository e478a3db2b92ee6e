// The learning rate as a pure function of the global step, so that resuming needs no state.
#pragma once

#include <cstdint>
#include <vector>

namespace engine {

struct LearningRate {
  enum class Schedule { kConstant, kStep, kCosine, kLinear, kStableDecay, kRange };
  // How the rate falls from `base` to `minimum` in kStableDecay, with p from 0 to 1: 1 - sqrt(p)
  // (Hägele et al., 2024), 1 - p, or half a cosine wave.
  enum class Decay { kSquareRoot, kLinear, kCosine };

  double base = 0.01;  // after scaling by the world size
  Schedule schedule = Schedule::kConstant;
  // The rate grows linearly over this many first steps: from base / warmup_steps (Goyal et al.,
  // 2017), but with kLinear and kStableDecay from `minimum`, as in the library transformers.
  std::int64_t warmup_steps = 0;
  std::vector<std::int64_t>
      milestones;  // kStep: at each of these global steps the rate is multiplied by gamma
  double gamma = 0.1;
  // kCosine (Loshchilov and Hutter, 2017), kLinear, kStableDecay: the minimum is reached after this
  // many steps.
  std::int64_t total_steps = 0;
  // For these: the step from which they are counted. It is 0 unless a run continues with another
  // batch size (EpochSteps::step_of_epoch(0)), and may be negative.
  std::int64_t first_step = 0;
  double minimum = 0;
  // kStableDecay (warm-up, stable, decay: Hu et al., 2024): the rate falls in this fraction of the
  // steps after the warm-up, rounded to whole steps; before, it is `base`.
  double decay_fraction = 0.2;
  Decay decay = Decay::kSquareRoot;
  // kRange: the rate in the last of total_steps; it grows exponentially from `base` (Smith, 2017: a
  // range test).
  double highest = 0;

  double at(std::int64_t global_step) const;  // for the update after `global_step` completed ones
};

}  // namespace engine
