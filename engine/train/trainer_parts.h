// What a Trainer works on, and how.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/optim/learning_rate.h"
#include "engine/train/best_model.h"
#include "engine/train/checks/desync_check.h"
#include "engine/train/checks/nonfinite_report.h"
#include "engine/train/evaluator.h"
#include "engine/train/saving/checkpoint_manager.h"
#include "engine/train/step/step_work.h"
#include "engine/train/train_observer.h"
#include "engine/train/weight_average.h"
#include "io/data/loader/batch_loader.h"

namespace engine {

struct Every {  // of steps, or of epochs; 0 = never
  std::int64_t count = 0;
  bool epochs = false;
};

struct TrainerOptions {
  std::int64_t total_steps = 0;
  // Reports come after each multiple of this many steps of the whole run; 0: none. Absent: at least
  // 100 in a run, at least one every 10 s, and one after the last step.
  std::optional<std::int64_t> log_every{};
  Every evaluate, save;
  double clip_grad = 0;
  // > 0: gradients are those of the sum of all losses of a step instead of their mean; as many
  // losses as a sample has.
  double losses_per_sample = 0;
  bool has_labels = true;  // else numbers are predicted, and there is no accuracy
  OnNonFinite on_nonfinite = OnNonFinite::kAbort;
  // After a failure of another rank the state is that of the last step done, so that it can go on
  // with others.
  bool supports_rollback = false;
  // Ranks that want to leave (TrainerParts::leave) may do so where at least so many are left; else
  // all stop, as if by this signal.
  int min_ranks = 1, leave_signal = 0;
};

// What the loop works on; all of it outlives the trainer.
struct TrainerParts {
  StepWork& work;
  TrainState& state;
  const LearningRate& learning_rate;
  const io::Sampler& sampler;
  io::BatchLoader& loader;
  backends::Communicator& control;      // small exchanges between steps
  Evaluator* evaluator = nullptr;       // null: never evaluates
  CheckpointManager* keeper = nullptr;  // null: never saves
  DesyncCheck* desync = nullptr;        // null: replicas are not compared
  BestModel* best = nullptr;            // null: no evaluation is better than another
  WeightAverage* average = nullptr;     // of the weights over time, evaluated too; null: none
  std::vector<TrainObserver*> observers;
  std::vector<int> island;  // the ranks that count as one replica with this one, itself among them;
                            // empty: itself
  std::function<void(std::string_view)> activity;  // told what this rank is doing; may be empty
  std::string resumed_from = {};  // the snapshot that the state came from; "": from none
  // Of a state that came from another rank's memory: what was done of it already.
  struct Done {
    std::int64_t evaluated = -1, saved = -1;  // steps
  };
  std::optional<Done> done = {};
  // Asked a few times a second; true on any rank: run() returns on all of them after the same step,
  // with TrainResult::paused. May be empty.
  std::function<bool()> pause = {};
  // The same, but run() returns with TrainResult::leaves as well on the ranks that have said so.
  std::function<bool()> leave = {};
};

}  // namespace engine
