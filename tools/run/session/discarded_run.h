// The options of a training run whose result is discarded: a measurement before the real run.
#pragma once

#include "tools/options/table/session_options.h"

namespace tools {

// Returns `options` without a folder, a checkpoint to resume, evaluations, checkpoints, checks and
// averages of weights.
SessionOptions discarded_run(SessionOptions options);

}  // namespace tools
