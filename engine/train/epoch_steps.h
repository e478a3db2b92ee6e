// Which global step begins which epoch. Progress is counted in epochs and samples; how many steps
// that is depends on the batch, and a run may go on with another one.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/train/saving/train_progress.h"

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

// How long a run is: so many epochs, whatever batch earlier ones had; or so many steps in all.
struct RunLength {
  std::int64_t epochs = 1;
  std::int64_t steps = 0;  // > 0: these
  std::int64_t steps_per_epoch = 1;

  EpochSteps epochs_from(const TrainProgress& at) const { return {at, steps_per_epoch}; }
  // Global steps at the end of a run that stands at `at`.
  std::int64_t total_steps(const TrainProgress& at) const {
    return steps > 0 ? steps : std::max<std::int64_t>(0, epochs_from(at).step_of_epoch(epochs));
  }
  // Epochs begun or done at the end.
  std::int64_t total_epochs(const TrainProgress& at) const {
    return steps == 0 ? epochs
                      : (steps - epochs_from(at).step_of_epoch(0) - 1) / steps_per_epoch + 1;
  }
};

}  // namespace engine
