// An exponential moving average of the parameters, maintained by a wrapper of any optimizer.
#pragma once

#include <memory>

#include "engine/optim/optimizer.h"

namespace engine {

// Runs `inner`, and after each of its updates computes average = decay * average + (1 - decay) *
// values, in the dtype of the values (f32 or f64); after the first update the average is the
// values. A skipped step changes nothing. (The operations are those of
// torch.optim.swa_utils.AveragedModel with get_ema_multi_avg_fn(decay).) The average is a state
// with the role kAverage; it is on the device of `values`, and on a CUDA device it is computed
// within the step.
std::unique_ptr<Optimizer> with_moving_average(std::unique_ptr<Optimizer> inner, double decay,
                                               const FlatBuffer& values);

// Returns the state with that role; null if there is none.
FlatBuffer* moving_average(Optimizer& optimizer);

}  // namespace engine
