// Declares the parts of a TrainSession, for its own sources.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/train/checks/desync_check.h"
#include "tools/run/session/best_choice.h"
#include "tools/run/session/session_memory.h"
#include "tools/run/session/session_parts.h"
#include "tools/run/session/train_session.h"

namespace tools {

// Each part needs only those before it. There are as many fields as parts: their order is the order
// of construction, and destruction is in reverse.
struct TrainSession::Impl {
  Impl(const SessionOptions& o, backends::Group& g, std::unique_ptr<backends::Communicator> c,
       RetainedState* kept);

  ComputeOptions with_place(ComputeOptions chosen) const;
  // The remaining length of the run, and its learning rate, depend on the state's current step.
  void plan_steps();
  // Collective: a host may lack the memory that the others have.
  std::shared_ptr<SessionModel> make_model();
  std::unique_ptr<engine::StepWork> make_step_work();
  engine::TrainState make_state();
  engine::KeeperOptions keeper_options();
  std::unique_ptr<engine::Evaluator> make_evaluator();
  std::unique_ptr<engine::DesyncCheck> make_desync() const;
  void recompute_statistics(std::int64_t epoch);
  // Implements --map-location: a rank has one device, so every array must go there. All arrays pass
  // through host memory.
  void place(const std::string& saved) const;

  StartFacts load_or_share_state();
  std::vector<std::string> load_weights();  // returns the omitted names
  void take_over();
  void carry();

  void gather_facts(StartFacts start);
  RankFacts rank_facts() const;
  AveragingFacts averaging_facts() const;
  UpdateFacts update_facts() const;
  LengthFacts length_facts() const;
  // Returns how steps run on a CUDA device: "captured from step 3 on", or why not; "" on the CPU.
  std::string capture_text() const;

  const SessionOptions options;
  backends::Group& group;
  RetainedState* const carried;
  const std::unique_ptr<backends::Communicator> control;  // for use between steps
  const Compute compute;
  const std::string processors;  // a notice about them, or ""
  const MemoryBudget memory;     // before loading the data
  const DataOptions coded_data;  // with the coding that the run starts from
  const SessionData data;
  const io::DataDigest data_digest;
  const std::shared_ptr<SessionModel> own_model;
  SessionModel& model;
  const std::vector<RunMachine> machines;
  const SessionCommunicators wires;
  const std::unique_ptr<engine::StepWork> work;
  const std::unique_ptr<engine::AveragingPolicy> policy;
  engine::TrainState state;
  io::BatchLoader loader;
  engine::CheckpointManager keeper;
  const std::unique_ptr<engine::Evaluator> evaluator;           // null: there is no evaluation
  const std::unique_ptr<engine::DesyncCheck> desync;            // null: replicas are not compared
  const std::unique_ptr<engine::BestModel> best;                // null: none is requested
  const std::unique_ptr<engine::EpochAverage> epoch_average;    // null: none
  const std::unique_ptr<engine::WeightAverage> moving_average;  // null: none
  std::vector<std::unique_ptr<engine::TrainObserver>> observers;
  std::string resumed_from;
  bool started = false;                            // the run can continue from the state
  std::optional<engine::TrainerParts::Done> done;  // for a state from a rank's memory
  std::unique_ptr<engine::Trainer> trainer;        // the current or last one
  std::optional<base::BoundThread> bound;          // for the thread that trains
  // Set by plan_steps().
  engine::EpochSteps epoch_steps;
  std::int64_t total_steps = 0;
  engine::LearningRate rate;
  SessionFacts facts;
};

}  // namespace tools
