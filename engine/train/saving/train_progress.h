// How far a training run has come.
#pragma once

#include <cstdint>

namespace engine {

// Where a run stands. `step_in_epoch` steps of `epoch` (from 0) are done.
struct TrainProgress {
  std::int64_t global_step = 0, epoch = 0, step_in_epoch = 0;
  std::int64_t samples_seen = 0;  // over all ranks
  // Of the samples of the next step of the epoch, those that were taken before, in steps of another
  // batch: where that changes in the middle of an epoch.
  std::int64_t taken = 0;

  // The epoch that the step just done belongs to, also where it has ended it.
  std::int64_t epoch_of_step() const { return step_in_epoch == 0 && epoch > 0 ? epoch - 1 : epoch; }
};

}  // namespace engine
