// The values that the parts of a session are made from.
#pragma once

#include "backends/group.h"
#include "engine/train/epoch_steps.h"
#include "tools/options/table/session_options.h"
#include "tools/run/choices/compute_choice.h"
#include "tools/run/data/session_data.h"

namespace tools {

// All outlive the parts, except if their comments say otherwise.
struct SessionSetting {
  const SessionOptions& options;
  const Compute& compute;
  const backends::Group& group;
  const SessionData& data;
};

inline engine::RunLength run_length(const SessionOptions& options, const SessionData& data) {
  return {.epochs = options.epochs,
          .steps = options.steps,
          .steps_per_epoch = data.sampler().steps_per_epoch()};
}

}  // namespace tools
