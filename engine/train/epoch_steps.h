// Which global step begins which epoch. Progress is counted in epochs and samples; how many steps
// that is depends on the batch, and a run may go on with another one.
#pragma once

#include <cstdint>

#include "engine/train/train_observer.h"

namespace engine {

struct EpochSteps {
  TrainProgress start;  // where this run begins or goes on
  std::int64_t steps_per_epoch = 1;

  // The global steps done when `epoch` (from 0) begins. For epochs before the start it is as if
  // they had had as many steps as those after it, so it may be negative; with the same batch from
  // the first step on it is epoch * steps_per_epoch.
  std::int64_t step_of_epoch(std::int64_t epoch) const {
    return start.global_step - start.step_in_epoch + (epoch - start.epoch) * steps_per_epoch;
  }
};

}  // namespace engine
