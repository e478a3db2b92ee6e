// Declares the parts of a TrainSession, for its own sources.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/train/balance/skipped_steps.h"
#include "engine/train/checks/desync_check.h"
#include "engine/train/trainer.h"
#include "tools/folder/run_record.h"
#include "tools/report/text/session_facts.h"
#include "tools/run/parts/best_choice.h"
#include "tools/run/parts/session_work.h"
#include "tools/run/session/retained_state.h"

namespace tools {

struct SessionParts;

// The facts of this host from before the data were loaded, and the communicators of its device.
struct SessionHost {
  const std::string processors;  // what is to be said of them, or ""
  const MemoryBudget memory;
  const DeviceCommunicators device_communicators;  // made before memory of the device is planned
};

struct SessionInput {
  explicit SessionInput(const SessionParts& s);  // by the parts before it

  const DataOptions options;  // with the coding that the run starts from
  SessionData data;
  const io::DataDigest digest;
  const std::string test_digest;  // "": as Checkpoint::test_digest
};

// The parts that evaluate and average the weights, and that balance the ranks' shares; null if not
// used.
struct SessionMonitors {
  const std::unique_ptr<engine::Evaluator> evaluator;
  const std::unique_ptr<engine::DesyncCheck> desync;
  const std::unique_ptr<engine::BestModel> best;
  const std::unique_ptr<engine::EpochAverage> epoch_average;
  const std::unique_ptr<engine::WeightAverage> moving_average;
  const std::unique_ptr<engine::ShareBalance> balance;
  const std::unique_ptr<engine::LocalSteps> local_steps;
  const std::unique_ptr<engine::SkippedSteps> skipped_steps;
};

// The origin of the state.
struct SessionStart {
  bool is_made = false;                            // training can continue from the state
  std::string resumed_from;                        // path of a checkpoint, or ""
  std::optional<engine::TrainerParts::Done> done;  // of a state from a rank's memory
};

// The rest of the run, and with it the learning rate: they follow from the progress of the state.
struct SessionSchedule {
  engine::EpochSteps epoch_steps;
  std::int64_t total_steps = 0;
  engine::LearningRate rate;
};

struct SessionTraining {
  std::vector<std::unique_ptr<engine::TrainObserver>> observers;
  std::unique_ptr<engine::Trainer> trainer;  // that runs, or ran last
  std::optional<base::BoundThread> bound;    // the thread that trains
};

// Each part needs only those before it. Their order is the order in which they are made, and
// destroyed in reverse.
struct SessionParts {
  SessionParts(const SessionOptions& o, backends::Group& g,
               std::unique_ptr<backends::Communicator> c, RetainedState* kept);

  // The values from which the parts after the input are made.
  SessionSetting setting() const { return {options, compute, group, input.data}; }

  const SessionOptions options;
  backends::Group& group;
  RetainedState* const retained;
  const std::unique_ptr<backends::Communicator> control;  // for use between steps
  const Compute compute;
  const SessionHost host;
  SessionInput input;
  const std::shared_ptr<SessionModel> model;
  const std::vector<RunMachine> machines;
  const SessionCommunicators communicators;
  const std::unique_ptr<engine::StepWork> work;
  const std::unique_ptr<engine::AveragingPolicy> policy;
  engine::TrainState state;
  io::BatchLoader loader;
  engine::CheckpointManager checkpoints;
  const SessionMonitors monitors;
  SessionStart start;
  SessionTraining training;
  SessionSchedule schedule;
  SessionFacts facts;
};

void plan_steps(SessionParts& s);
void gather_facts(SessionParts& s, StartFacts start);
// --map-location: a rank has one device, so that is where every array must go. All pass through
// host memory.
void place_saved(const SessionParts& s, const std::string& saved);

}  // namespace tools
