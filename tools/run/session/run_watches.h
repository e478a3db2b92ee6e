// Adds rank 0's checks during a run: its folder, its output, the capture of its steps.
#pragma once

#include "tools/run/session/train_session.h"
#include "tools/run/session/training_run.h"

namespace tools {

// Both must outlive the training. The checks end the training with an error, or print a notice.
void add_watches(const TrainingRun& run, TrainSession& session);

}  // namespace tools
