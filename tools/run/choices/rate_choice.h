// Computes the learning rate of a run from --lr, the number of ranks and the length of the run.
#pragma once

#include <string>

#include "engine/optim/learning_rate.h"
#include "engine/train/epoch_steps.h"
#include "engine/train/saving/train_progress.h"
#include "tools/options/table/session_options.h"

namespace tools {

// Returns the rate scaled to this number of ranks (--lr-scale, --elastic-batch). `max_ranks` as in
// DataOptions.
double scaled_rate(double rate, const UpdateOptions& options, int world_size, int max_ranks);
// Returns how the base rate was computed from --lr: " (0.1 x 2 ranks)"; "" if it is --lr.
std::string rate_arithmetic(const UpdateOptions& options, int world_size, int max_ranks);

// Returns the rate of a run that starts or continues at `at`.
engine::LearningRate learning_rate(const UpdateOptions& options, int world_size, int max_ranks,
                                   const engine::RunLength& run, const engine::TrainProgress& at);

}  // namespace tools
