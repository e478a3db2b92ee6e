// Writes training events to TensorBoard's event files (io/metrics/event_file.h). docs/reporting.md
// has the tags.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/averaging/math/state_home.h"
#include "engine/graph/model_state.h"
#include "engine/train/train_observer.h"
#include "io/metrics/event_file.h"

namespace tools {

struct TensorboardOptions {
  std::string folder;
  io::NamedBy folder_named_by = io::NamedBy::kUser;
  std::string run;        // its id
  std::int64_t step = 0;  // the run's current step
  std::vector<io::Hyperparameter> hyperparameters;
  std::string configuration;  // Markdown
  int ranks = 1;
  bool text = false;                                // the data are tokens
  bool top5 = false;                                // evaluations report it
  bool regression = false;                          // evaluations report errors, and no accuracy
  bool labels = false;                              // the same with scores of several labels
  bool positions = false;                           // labels of positions, with mean IoU
  std::int64_t gpu_every = 0, histogram_every = 0;  // steps; 0: never
  // For histograms; both outlive the observer. `gradients`: this rank has those of all parameters.
  const engine::ModelState* model = nullptr;
  engine::StateHome* home = nullptr;
  bool gradients = false;
  bool elastic = false;  // other ranks may continue if this one fails
  // Called after each evaluation of the model, with its step: writes predictions of single samples.
  // May be empty.
  std::function<void(std::int64_t step, io::EventFile& file)> show_samples = {};
};

// Makes a new file. Throws io::CannotCreateError, and io::ConfigError if there is no GPU to sample.
std::unique_ptr<engine::TrainObserver> make_tensorboard_observer(TensorboardOptions options);

}  // namespace tools
