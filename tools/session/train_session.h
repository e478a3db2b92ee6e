// One rank's training, assembled from typed options: data, model, plan, wires, policy, optimizer,
// loop.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "backends/group.h"
#include "engine/train/trainer.h"
#include "io/data/sources/images/augmentation.h"
#include "tools/options/session_options.h"
#include "tools/run/run_record.h"
#include "tools/session/session_data.h"
#include "tools/session/shown_samples.h"

namespace tools {

struct SessionModel;

// What a rank keeps in memory from one session to the next, when the ranks of its group change.
struct Carried {
  std::shared_ptr<LoadedData> data;
  engine::StateImage image;
  std::shared_ptr<engine::SnapshotWriter> writer;  // may be writing
  std::shared_ptr<SessionModel> model;  // with the state of the image, where there is one
  std::optional<int> place;             // on this host (place_on_host()): the device stays the same
};

// What TrainerParts and TrainerOptions have of ranks that come and go.
struct RankChanges {
  std::function<bool()> pause = {}, leave = {};
  int least_ranks = 1, leave_signal = 0;
};

class TrainSession {
 public:
  // Collective over the group. `group` outlives the session. `control` serves what ranks agree on
  // between steps; null: the session makes one. What was `carried` over (null: nothing can be) is
  // taken from there when it has done its service, and outlives the session. Throws what the parts
  // throw.
  TrainSession(const SessionOptions& options, backends::Group& group,
               std::unique_ptr<backends::Communicator> control = nullptr,
               Carried* carried = nullptr);
  // Leaves in `carried` what another session needs to go on.
  ~TrainSession();

  // Weights from another rank's memory, --init-from or --resume, the same on all ranks; returns the
  // line that says which. How many steps are left is known from then on. Collective.
  std::string start_state();
  // The line with every resolved choice.
  std::string start_line() const;
  // What follows from the number of ranks where an elastic job's batch scales with it; else "".
  std::string scale_line() const;
  // What a table's columns became, "" where the data set is none; and warnings about the data.
  const std::string& columns_line() const;
  std::vector<std::string> data_warnings() const;
  // "" where all ranks compute with the same instruction set.
  const std::string& processors_notice() const;
  // "" unless this rank's device has to translate kernels first.
  std::string device_notice() const;
  // What each rank computes on, for the run's record; the same on every rank.
  const std::vector<RunMachine>& machines() const;
  // With --check-sampler: what it has proved; else "".
  std::string sampler_line() const;
  // With --shard file: which training samples are each rank's; else none.
  std::vector<std::string> shard_lines() const;
  // What the averaging will do, and warnings about likely mistakes; call it after
  // start_state().
  std::vector<std::string> plan_lines() const;
  // "" before the last step; then that the run is done, and what would go on.
  std::string nothing_left() const;
  // The model layer by layer, and what each rank needs of the memory that it computes in; the same
  // on every rank. Collective. Weights need not be there.
  std::string plan_tables() const;
  // What --freeze leaves as it is; "" where all is trained.
  std::string frozen_line() const;
  // How steps run on a CUDA device: "captured as a graph from the third step on", or why not; "" on
  // the CPU.
  std::string graph_line() const;
  engine::TrainResult run(const std::atomic<int>& stop_signal, RankChanges changes = {});

  // Binds the calling thread to its place (--bind), until the session ends.
  engine::Trainer make_trainer(const std::atomic<int>& stop_signal, RankChanges changes = {});
  void add_observer(std::unique_ptr<engine::TrainObserver> observer);
  std::int64_t global_batch() const;
  std::int64_t steps_per_epoch() const;
  std::int64_t total_steps() const;  // global steps at the end
  std::int64_t epochs() const;       // begun or done at the end
  const SessionData& data() const;
  // What the model says of these test samples; null where there is none, and for text.
  std::unique_ptr<ShownSamples> show_samples(std::int64_t count);
  // Of the training data; "" where nothing is saved or resumed.
  const std::string& data_digest() const;
  bool resumed() const;
  bool carried_over() const;  // the state came from a rank's memory
  bool on_device() const;     // whether steps run on a CUDA device, beside the host
  engine::TrainState& state();
  engine::CheckpointKeeper& keeper();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tools
