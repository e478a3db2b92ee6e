// Creates optimizers that update each element by the same function (engine/ops/optim_step/
// update_list.h): memory for the states, and one pass over all parameters.
#pragma once

#include <utility>
#include <vector>

#include "engine/ops/optim_step/optimizer_step.h"
#include "engine/optim/optimizer.h"

namespace engine {

// `states` are the step's, in its order; their memory is allocated here, with the slots and device
// of `parts.values`.
std::unique_ptr<Optimizer> make_elementwise(const OptimizerSpec& spec, const ops::UpdateStep& step,
                                            const std::vector<OptimizerState>& states,
                                            const OptimizerParts& parts);

// Returns the step with the values of `time`, on the CPU.
ops::UpdateStep at_time(ops::UpdateStep step, const ops::UpdateTime& time);

}  // namespace engine
