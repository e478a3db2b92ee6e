// What rank 0 looks at while a run goes on: its folder, its output, the capture of its steps.
#pragma once

#include "tools/run/session/train_session.h"
#include "tools/run/session/training_run.h"

namespace tools {

// Both must stay. What they see ends the training with an error, or is said in a notice.
void add_watches(const TrainingRun& run, TrainSession& session);

}  // namespace tools
