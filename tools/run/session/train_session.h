// One rank's training, assembled from typed options: data, model, plan, wires, policy, optimizer,
// loop.
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
#include "tools/options/table/session_options.h"
#include "tools/report/observers/session_facts.h"
#include "tools/run/data/session_data.h"
#include "tools/run/data/shown_samples.h"
#include "tools/run/folder/run_record.h"
#include "tools/run/session/dry_run.h"

namespace tools {

struct SessionModel;
struct SessionParts;  // train_session_impl.h

// What a rank keeps in memory from one session to the next, when the ranks of its group change.
struct RetainedState {
  std::shared_ptr<LoadedData> data;
  engine::StateImage image;
  std::shared_ptr<engine::SnapshotWriter> writer;  // may be writing
  std::shared_ptr<SessionModel> model;  // with the state of the image, where there is one
  std::optional<int> place;             // on this host (place_on_host()): the device stays the same
};

// What TrainerParts and TrainerOptions have of ranks that come and go.
struct RankChanges {
  std::function<bool()> pause = {}, leave = {};
  int min_ranks = 1, leave_signal = 0;
};

class TrainSession {
 public:
  // Collective over the group. `group` outlives the session. `control` serves what ranks agree on
  // between steps; null: the session makes one. What was `carried` over (null: nothing can be) is
  // taken from there when it has done its service, and outlives the session. Throws what the parts
  // throw.
  TrainSession(const SessionOptions& options, backends::Group& group,
               std::unique_ptr<backends::Communicator> control = nullptr,
               RetainedState* carried = nullptr);
  // Leaves in `carried` what another session needs to go on.
  ~TrainSession();

  // Loads weights from another rank's memory, --init-from or --resume, the same on all ranks; how
  // many steps are left is known from then on. Collective.
  const SessionFacts& start_state();
  // Valid for as long as the session; those of the state, its start and the run's length are final
  // after start_state().
  const SessionFacts& facts() const;
  // Why steps cannot be captured on the device, once that has been tried; "" if they can be.
  std::string capture_failure() const;
  // What each rank needs of the memory that it computes in; the same on every rank. Collective.
  std::vector<RankMemory> gather_memory() const;
  // What each rank computes on, for the run's record; the same on every rank.
  const std::vector<RunMachine>& machines() const;
  const engine::Graph& graph() const;
  const SessionData& data() const;
  engine::TrainState& state();
  engine::CheckpointManager& keeper();
  // What the model says of these test samples; null where there is none, and for text.
  std::unique_ptr<ShownSamples> show_samples(std::int64_t count);

  void add_observer(std::unique_ptr<engine::TrainObserver> observer);
  engine::TrainResult run(const std::atomic<int>& stop_signal, RankChanges changes = {});
  // Binds the calling thread to its place (--bind), until the session ends.
  engine::Trainer make_trainer(const std::atomic<int>& stop_signal, RankChanges changes = {});

 private:
  std::unique_ptr<SessionParts> parts_;
};

}  // namespace tools
