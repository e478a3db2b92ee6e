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

// Samples in memory, with a label each: `values` or `pixels`, not both.
struct Samples {
  std::array<std::int64_t, 3> shape{};    // of one: height, width, channels; 1, 1, columns
  std::vector<float> values = {};         // NHWC, as the model reads them
  std::vector<std::uint8_t> pixels = {};  // NHWC; prepared by the options normalize and augment
  std::vector<std::int32_t> labels = {};  // 0 ... classes - 1
  std::int64_t classes = 0;
};

struct Progress {
  std::int64_t step = 0;   // steps done since the training began
  std::int64_t epoch = 0;  // from 0, of which step_in_epoch steps are done
  std::int64_t step_in_epoch = 0;
  std::int64_t samples = 0;  // seen by all ranks
};

struct StepReport {
  Progress progress;
  double loss = 0;      // mean over the last step's samples, of all ranks
  double accuracy = 0;  // share of right predictions in the epoch so far; of a regression NaN
  double learning_rate = 0;
  double samples_per_second = 0;  // of all ranks, since the last report
};

struct Evaluation {
  Progress progress;
  double loss = 0;      // mean, each test sample counted once
  double accuracy = 0;  // share of right predictions; of a regression NaN
  std::int64_t samples = 0;
  std::string weights;  // "model", or which average of them: "ema", "average"
};

struct TrainingResult {
  Progress progress;
  double seconds = 0;
  bool stopped = false;                  // by stop(), before the last step
  std::string stopped_early;             // by the option early-stop, and why; "": it was not
  std::optional<Evaluation> evaluation;  // the last one of the model's own weights
  std::string folder;                    // of the run; "": nothing was saved
  std::string description;  // a line with every resolved choice: threads, backend, batch ...
};

// A training of one rank; each rank of the group has one with the same options and data. Moves
// only.
class ENGINE_API Training {
 public:
  Training();
  Training(Training&&) noexcept;
  Training& operator=(Training&&) noexcept;
  ~Training();

  // Any option of `engine train`, named and spelled as there without the dashes: set("lr", 0.1),
  // set("optimizer", "adamw"), set("save-dir", "run"), set("resume", "auto"). The group is made
  // elsewhere and takes its own options; ENGINE_* variables are not read. Values are checked by
  // run(). Throws ConfigurationError for a name that is no option or has no use here.
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
  // Options from a file as `engine train --config` takes it; what was set() stays.
  Training& read_options(const std::string& path);
  // The model, instead of the option: the text of a list of layers (docs/models.md).
  Training& define_model(const std::string& toml);
  // Arrays, instead of the option dataset. Equal on all ranks; each trains on its share. Without
  // test samples nothing is evaluated. Throws DataError for samples that contradict themselves.
  Training& use(Samples train, Samples test = {});

  // Called in the thread of run(): on every rank, but on_save on rank 0 alone. What they throw ends
  // the training and passes through run().
  Training& on_step(std::function<void(const Progress&)> callback);      // each step
  Training& on_report(std::function<void(const StepReport&)> callback);  // each log-every steps
  Training& on_evaluation(std::function<void(const Evaluation&)> callback);
  Training& on_save(std::function<void(const Progress&, const std::string& path)> callback);

  // Trains from the beginning, or from where `resume` says, to the last step. Collective over the
  // group. Throws what docs/api.md lists; ranks fail together, for the same reason.
  TrainingResult run(Group& group);
  // run() saves, where there is a folder, and returns after the step under way, on all ranks. From
  // any thread, also within a callback or a signal's handler. Holds for the run() that goes on, or
  // else for the next one.
  void stop() noexcept;

  // The model after run(), with weights of its own. Throws ConfigurationError before it.
  Model model() const;

 private:
  Training& set_number(const std::string& option, double value);

  struct ENGINE_HIDDEN Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace engine::api
