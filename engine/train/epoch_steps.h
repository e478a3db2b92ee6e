// Maps epochs to global steps. Progress is counted in epochs and samples; the number of steps
// depends on the batch size, and a run may continue with another one.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/train/saving/train_progress.h"

namespace engine {

struct EpochSteps {
  TrainProgress start;  // the position at which this run starts or continues
  std::int64_t steps_per_epoch = 1;

  // The number of completed global steps at the start of `epoch` (from 0). Epochs before the start
  // are counted as if they had as many steps as those after it, so the result may be negative; with
  // a constant batch size it is epoch * steps_per_epoch.
  std::int64_t step_of_epoch(std::int64_t epoch) const {
    return start.global_step - start.step_in_epoch + (epoch - start.epoch) * steps_per_epoch;
  }
};

// The length of a run: a number of epochs for any batch size of earlier ones, or a total number of
// steps.
struct RunLength {
  std::int64_t epochs = 1;
  std::int64_t steps = 0;  // used if > 0
  std::int64_t steps_per_epoch = 1;

  EpochSteps epochs_from(const TrainProgress& at) const { return {at, steps_per_epoch}; }
  // Returns the number of global steps at the end of a run whose progress is `at`.
  std::int64_t total_steps(const TrainProgress& at) const {
    return steps > 0 ? steps : std::max<std::int64_t>(0, epochs_from(at).step_of_epoch(epochs));
  }
  // Returns the number of epochs started or completed at the end.
  std::int64_t total_epochs(const TrainProgress& at) const {
    return steps == 0 ? epochs
                      : (steps - epochs_from(at).step_of_epoch(0) - 1) / steps_per_epoch + 1;
  }
};

}  // namespace engine
