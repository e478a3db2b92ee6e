// The objects that a Trainer works on, and its options.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/optim/learning_rate.h"
#include "engine/train/balance/local_steps.h"
#include "engine/train/balance/share_balance.h"
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

struct Every {  // interval in steps or in epochs; 0 = never
  std::int64_t count = 0;
  bool epochs = false;
};

struct TrainerOptions {
  std::int64_t total_steps = 0;
  // Reports follow each multiple of this many steps of the whole run; 0: none. Absent: at least 100
  // per run, at least one every 10 s, and one after the last step.
  std::optional<std::int64_t> log_every{};
  Every evaluate, save;
  double clip_grad = 0;
  // > 0: gradients are those of the sum of all losses of a step instead of their mean; the value is
  // the number of losses per sample.
  double losses_per_sample = 0;
  // For each sample of the training set, the weight of its loss in means; empty: 1. Unequal ones
  // only with io::Shard::kContiguous.
  std::vector<double> loss_weights = {};
  // Losses of a sample; with loss_weights, which are sums over them.
  std::int64_t positions = 1;
  bool has_labels = true;  // false: regression, without accuracy
  OnNonFinite on_nonfinite = OnNonFinite::kAbort;
  // After a failure of another rank the state is that of the last completed step, so that it can
  // continue with other ranks.
  bool supports_rollback = false;
  // Ranks that want to leave (TrainerParts::leave) may do so if at least `min_ranks` remain;
  // otherwise all stop, as if by `leave_signal`.
  int min_ranks = 1, leave_signal = 0;
};

// The objects that the loop works on; all must outlive the trainer.
struct TrainerParts {
  StepWork& work;
  TrainState& state;
  const LearningRate& learning_rate;
  io::Sampler& sampler;
  io::BatchLoader& loader;
  backends::Communicator& control;           // for small exchanges between steps
  Evaluator* evaluator = nullptr;            // null: never evaluates
  CheckpointManager* checkpoints = nullptr;  // null: never saves
  DesyncCheck* desync = nullptr;             // null: replicas are not compared
  BestModel* best = nullptr;                 // null: evaluations are not compared
  WeightAverage* average = nullptr;          // average of the weights over time, evaluated as well;
                                             // null: none
  // Changes the ranks' shares of steps (SamplerOptions::shares_change); null: they stay.
  ShareBalance* balance = nullptr;
  // A rank takes only the steps in which it has samples, while the policy's steps need no other
  // rank (SamplerOptions::shares_change); null: all steps.
  LocalSteps* local_steps = nullptr;
  std::vector<TrainObserver*> observers;
  std::vector<int> island;  // the ranks that form one replica with this one, including itself;
                            // empty: only itself
  std::function<void(std::string_view)> activity;  // called with this rank's current activity; may
                                                   // be empty
  std::string resumed_from = {};  // the checkpoint that the state was loaded from; "": none
  // For a state from another rank's memory: the actions that were already completed for it.
  struct Done {
    std::int64_t evaluated = -1, saved = -1;  // steps of the last ones
  };
  std::optional<Done> done = {};
  // Called a few times per second; if true on any rank, run() returns on all of them after the same
  // step, with TrainResult::paused. May be empty.
  std::function<bool()> pause = {};
  // The same, but run() also returns with TrainResult::leaves on the ranks that returned true.
  std::function<bool()> leave = {};
};

}  // namespace engine
