// One rank's training, assembled from typed options: data, model, plan, communicators, policy,
// optimizer, loop.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/group.h"
#include "engine/train/trainer.h"
#include "io/data/images/augmentation.h"
#include "tools/folder/run_record.h"
#include "tools/options/table/session_options.h"
#include "tools/report/text/session_facts.h"
#include "tools/run/data/session_data.h"
#include "tools/run/data/shown_samples.h"
#include "tools/run/session/dry_run.h"
#include "tools/run/session/retained_state.h"

namespace tools {

struct SessionParts;  // session_parts.h

// The options of TrainerParts and TrainerOptions for ranks that join and leave.
struct RankChanges {
  std::function<bool()> pause = {}, leave = {};
  int min_ranks = 1, leave_signal = 0;
};

class TrainSession {
 public:
  // Collective over the group. `group` outlives the session. `control` is for agreement between
  // steps; null: the session makes one. `retained` is the state retained from the previous session
  // (null: none), which is taken from it when it has been used, and outlives the session. Throws as
  // the parts do.
  TrainSession(const SessionOptions& options, backends::Group& group,
               std::unique_ptr<backends::Communicator> control = nullptr,
               RetainedState* retained = nullptr);
  // Stores in `retained` what another session needs to continue.
  ~TrainSession();

  // Loads weights from another rank's memory, --init-from or --resume, the same on all ranks;
  // afterwards the number of remaining steps is known. Collective.
  const SessionFacts& start_state();
  // Valid as long as the session; facts about the state, its start and the run's length are final
  // after start_state().
  const SessionFacts& facts() const;
  // Returns why steps cannot be captured on the device, after the attempt; "" if they can be.
  std::string capture_failure() const;
  // Returns each rank's need of memory; the same on every rank. Collective.
  std::vector<RankMemory> gather_memory() const;
  // Returns the machine of each rank, for the run's record; the same on every rank.
  const std::vector<RunMachine>& machines() const;
  const engine::Graph& graph() const;
  const SessionData& data() const;
  engine::TrainState& state();
  engine::CheckpointManager& checkpoints();
  // Returns predictions for these test samples; null if there are none, and for text.
  std::unique_ptr<ShownSamples> show_samples(std::int64_t count);

  void add_observer(std::unique_ptr<engine::TrainObserver> observer);
  engine::TrainResult run(const std::atomic<int>& stop_signal, RankChanges changes = {});
  // Binds the calling thread to its place (--bind) until the session ends.
  engine::Trainer make_trainer(const std::atomic<int>& stop_signal, RankChanges changes = {});

 private:
  std::unique_ptr<SessionParts> parts_;
};

}  // namespace tools
