// Data-parallel training of a model on a named data set or on arrays.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "engine/collectives.h"
#include "engine/model.h"

namespace engine::api {

// Samples in memory, each with a label: either `values` or `pixels`.
struct Samples {
  std::array<std::int64_t, 3> shape{};    // one sample: height, width, channels; 1, 1, columns
  std::vector<float> values = {};         // NHWC, as the model reads them
  std::vector<std::uint8_t> pixels = {};  // NHWC; prepared by the options normalize and augment
  std::vector<std::int32_t> labels = {};  // 0 ... classes - 1
  std::int64_t classes = 0;
};

struct Progress {
  std::int64_t step = 0;   // completed steps since the training began
  std::int64_t epoch = 0;  // from 0; step_in_epoch of its steps are completed
  std::int64_t step_in_epoch = 0;
  std::int64_t samples = 0;  // processed by all ranks
};

struct StepReport {
  Progress progress;
  double loss = 0;      // mean over the last step's samples on all ranks
  double accuracy = 0;  // fraction of correct predictions in the epoch so far; NaN for a regression
  double learning_rate = 0;
  double samples_per_second = 0;  // on all ranks, since the last report
};

struct Evaluation {
  Progress progress;
  double loss = 0;      // mean, each test sample counted once
  double accuracy = 0;  // fraction of correct predictions; NaN for a regression
  std::int64_t samples = 0;
  std::string weights;  // "model", or the kind of averaged weights: "ema", "average"
};

struct TrainingResult {
  Progress progress;
  double seconds = 0;
  bool stopped = false;                  // true if stop() ended it before the last step
  std::string stopped_early;             // why the option early-stop ended it; "": it did not
  std::optional<Evaluation> evaluation;  // the last evaluation of the model's own weights
  std::string folder;                    // the run's folder; "": nothing was saved
  std::string description;  // one line with every resolved choice: threads, backend, batch ...
};

// The training of one rank; each rank of the group has one with the same options and data.
// Move-only.
class ENGINE_API Training {
 public:
  Training();
  Training(Training&&) noexcept;
  Training& operator=(Training&&) noexcept;
  ~Training();

  // Sets any option of `engine train`, by its name there without the dashes: set("lr", 0.1),
  // set("optimizer", "adamw"), set("save-dir", "run"), set("resume", "auto"). The group is created
  // separately and has its own options; ENGINE_* variables are not read. run() checks the values.
  // Throws ConfigurationError for a name that is not an option or has no use here.
  Training& set(const std::string& option, const std::string& value);
  template <class Value>
  requires std::is_arithmetic_v<Value> Training& set(const std::string& option, Value value) {
    if constexpr (std::same_as<Value, bool>)
      return set(option, std::string(value ? "true" : "false"));
    else if constexpr (std::integral<Value>)
      return set(option, std::to_string(value));
    else
      return set_number(option, static_cast<double>(value));
  }
  // Reads options from a file as for `engine train --config`; values from set() take precedence.
  Training& read_options(const std::string& path);
  // Sets the model, in place of the option: the text of a list of layers (docs/toml.md).
  Training& define_model(const std::string& toml);
  // Sets arrays in place of the option dataset. They must be equal on all ranks; each trains on its
  // share. Without test samples there is no evaluation. Throws DataError for inconsistent samples.
  Training& use(Samples train, Samples test = {});

  // The callbacks run in the thread of run(), on every rank, except on_save, which runs only on
  // rank 0. An exception from a callback ends the training and passes through run().
  Training& on_step(std::function<void(const Progress&)> callback);      // each step
  Training& on_report(std::function<void(const StepReport&)> callback);  // each log-every steps
  Training& on_evaluation(std::function<void(const Evaluation&)> callback);
  Training& on_save(std::function<void(const Progress&, const std::string& path)> callback);

  // Trains from the beginning, or from the checkpoint of `resume`, to the last step. Collective
  // over the group. Throws the exceptions listed in docs/api.md; ranks fail together, for the same
  // reason.
  TrainingResult run(Group& group);
  // Makes run() save, if there is a folder, and return after the current step, on all ranks. May be
  // called from any thread, a callback or a signal handler. Applies to the current run(), or else
  // to the next one.
  void stop() noexcept;

  // Returns the model after run(), with its own copy of the weights. Throws ConfigurationError
  // before run(). It predicts on the CPU until Model::set_device().
  Model model() const;
  // Returns the device that this rank has trained on: "cpu" or "cuda:N"; for the option device
  // "auto" or "cuda" its choice. Throws ConfigurationError before run().
  std::string device() const;

 private:
  Training& set_number(const std::string& option, double value);

  struct ENGINE_HIDDEN Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace engine::api
