// An exponential moving average of the parameters, kept beside any optimizer.
#pragma once

#include <memory>

#include "engine/optim/optimizer.h"

namespace engine {

// `inner`, and after each of its updates average = decay * average + (1 - decay) * values, in
// float32 or float64 as the values are; after the first the average is the values. A skipped step
// changes nothing. (torch.optim.swa_utils.AveragedModel with get_ema_multi_avg_fn(decay): the same
// operations.) The average is a state with the role kAverage; it lies where `values` do, and is
// made on a CUDA device within the step.
std::unique_ptr<Optimizer> with_moving_average(std::unique_ptr<Optimizer> inner, double decay,
                                               const FlatBuffer& values);

// The state of that role; null where there is none.
FlatBuffer* moving_average(Optimizer& optimizer);

}  // namespace engine
