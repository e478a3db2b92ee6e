// What a training tells, as TensorBoard's event files (io/metrics/event_file.h). Tags:
// docs/reporting.md.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/core/state_home.h"
#include "engine/graph/model_state.h"
#include "engine/train/train_observer.h"
#include "io/metrics/event_file.h"

namespace tools {

struct TensorboardOptions {
  std::string folder;
  io::NamedBy folder_named_by = io::NamedBy::kUser;
  std::string run;        // its id
  std::int64_t step = 0;  // where the run stands
  std::vector<io::Hyperparameter> hyperparameters;
  std::string configuration;  // Markdown
  int ranks = 1;
  bool text = false;                                // the data are tokens
  bool top5 = false;                                // evaluations tell it
  bool regression = false;                          // they tell errors, and no accuracy
  std::int64_t gpu_every = 0, histogram_every = 0;  // steps; 0: never
  // For histograms; both outlive the observer. `gradients`: those of a step lie in host memory.
  const engine::ModelState* model = nullptr;
  engine::StateHome* home = nullptr;
  bool gradients = false;
  bool elastic = false;  // other ranks may go on where this one fails
  // Told after each evaluation of the model, with its step: writes what it says of single samples.
  // May be empty.
  std::function<void(std::int64_t step, io::EventFile& file)> show_samples = {};
};

// Makes a new file. Throws io::CannotCreateError, and io::ConfigError where there is no GPU to
// sample.
std::unique_ptr<engine::TrainObserver> make_tensorboard_observer(TensorboardOptions options);

}  // namespace tools
