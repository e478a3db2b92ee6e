// A small training run on ranks that are threads, assembled from engine's parts alone: for tests of
// the loop. Whole runs by options: session_runner.h.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/group.h"
#include "engine/train/trainer.h"
#include "tests/engine/train/tiny_training.h"
#include "tests/support/hooked_group.h"

namespace trainer_fixture {

// 24 images of 4x4x1 in steps of 6: four steps an epoch.
constexpr std::int64_t kStepsPerEpoch = 4;

// In every step; the gradients also as codes of bf16.
enum class Averaging { kGradients, kCodedGradients, kParameters, kNone };

struct Options {
  std::int64_t steps = 2 * kStepsPerEpoch;
  engine::Every evaluate = {}, save = {};
  std::optional<std::int64_t> log_every = 0;
  std::string folder = {};  // of checkpoints; "": nothing is saved
  // Takes the folder from a lost rank 0 for another rank; empty: no rank can.
  std::function<bool()> take_folder = {};
  bool evaluates = true;
  std::optional<engine::BestModelOptions> best = {};
  std::int64_t average_last = 0;  // epochs; 0: no average
  Averaging averaging = Averaging::kGradients;
  engine::OnNonFinite on_nonfinite = engine::OnNonFinite::kAbort;
  bool supports_rollback = false;
  int min_ranks = 1, leave_signal = 0;
};

using test_support::HookedCommunicator;

// One rank: a model with BatchNorm, SGD with momentum, and all that a Trainer can have.
class Rank final : private engine::TrainObserver {
 public:
  // Collective over the group, which outlives the rank.
  Rank(const Options& options, backends::Group& group);
  ~Rank() override;

  int number() const { return control->rank(); }
  // Starts the run, or goes on with it from the newest checkpoint of the folder.
  engine::TrainResult run();
  engine::TrainResult resume();
  // Parameters, running statistics, counters and momentum as they lie in memory.
  std::string state_bytes() const;
  std::int64_t step() const { return state.progress.global_step; }

  // The steps' and the exchanges' communicators.
  const std::unique_ptr<HookedCommunicator> gradients, control;
  // Told after each step; what it does happens between two steps.
  std::function<void(std::int64_t step)> after_step = {};
  std::function<bool()> pause = {}, leave = {};
  // Called when the average's statistics are recomputed, before they become twice those of the end.
  std::function<void()> recompute = {};
  std::optional<engine::TrainerParts::Done> done = {};
  std::atomic<int> stop_signal{0};
  // "step 3", "report 3", "evaluated 3", "saved 3", "not finite: loss", "end".
  std::vector<std::string> events;

  tiny_training::Parts parts;
  const std::unique_ptr<engine::Optimizer> optimizer;
  engine::KernelContext context;
  const std::unique_ptr<engine::StepWork> work;
  const std::unique_ptr<engine::AveragingPolicy> policy;
  engine::TrainState state;
  engine::CheckpointManager checkpoints;

 private:
  engine::TrainResult train(const std::string& resumed_from);
  void note(const std::string& what, std::int64_t step);
  void on_step(const engine::TrainProgress& progress) override;
  void on_report(const engine::StepReport& report) override;
  void on_eval(const engine::EvalReport& report) override;
  void on_nonfinite(const engine::TrainProgress&, const engine::NonFiniteReport& found) override;
  void on_save(const engine::TrainProgress& progress, const std::string& path) override;
  void on_end(const engine::TrainResult& result) override;

  const Options options_;
  engine::LearningRate rate_;
  std::unique_ptr<engine::Evaluator> evaluator_;
  std::unique_ptr<engine::BestModel> best_;
  std::unique_ptr<engine::EpochAverage> average_;
};

// Runs body on each of `world` ranks, every one in a thread. Rethrows the first exception of the
// lowest rank that has one.
void in_threads(int world, const std::function<void(backends::Group&)>& body);
void on_ranks(int world, const Options& options, const std::function<void(Rank&)>& body);

}  // namespace trainer_fixture
