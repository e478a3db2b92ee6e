// The progress of a training run.
#pragma once

#include <cstdint>

namespace engine {

// The position of a run: `step_in_epoch` steps of `epoch` (from 0) are completed.
struct TrainProgress {
  std::int64_t global_step = 0, epoch = 0, step_in_epoch = 0;
  std::int64_t samples_seen = 0;  // over all ranks
  // The number of samples of the epoch's next step that earlier steps with another batch size have
  // used, if the batch size changes in the middle of an epoch.
  std::int64_t taken = 0;

  // The epoch of the last completed step, even if that step ended it.
  std::int64_t epoch_of_step() const { return step_in_epoch == 0 && epoch > 0 ? epoch - 1 : epoch; }
};

}  // namespace engine
